package contention

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// The leases of turns: one is longer than any outage of the store, and one expires during the run.
const (
	leaseTTL      = time.Minute
	shortLeaseTTL = memory.MinLeaseTTL
)

// roundsPerSession limits the rounds in one session, because each round reads the whole session.
const roundsPerSession = 100

// sessionRun runs rounds in a series of sessions. One goroutine runs each session. In a round where two callers
// compete, it waits for both.
type sessionRun struct {
	*Run
	prefix  string // prefix of the names of its sessions
	name    string // name of the current session
	rng     *rand.Rand
	rounds  int
	granted session.Turn // the latest granted turn; used only by the goroutine that begins turns

	unresolved map[string]rejectedWrite // rejected writes that may have taken effect, by key; guarded by mu of the Run
}

// run runs rounds until the Run finishes. It returns an error for a reply that the store must never give.
func (r *sessionRun) run(ctx context.Context) error {
	moves := []func(context.Context, memory.Begin, memory.BeginResult) error{
		r.playSingleHolder, r.playTakeover, r.playTakeover, r.playRace, r.playRace, r.playProbes, r.playRelease, r.playExpiry,
	}
	for {
		select {
		case <-r.done:
			return r.loadSession(ctx)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if r.rounds++; r.rounds%roundsPerSession == 0 {
			r.name = fmt.Sprintf("%s-%d", r.prefix, r.rounds/roundsPerSession)
		}
		id := fmt.Sprintf("%s-t%d", r.name, r.rounds)
		b := memory.Begin{
			Ref: r.sessionRef(), TurnID: id, TraceID: newTraceID(), Fingerprint: "f", Message: conversation.User(id), LeaseTTL: leaseTTL, Window: maxReadMessages,
		}
		move := r.rng.IntN(len(moves))
		if move == len(moves)-1 {
			b.LeaseTTL = shortLeaseTTL
		}
		begun, err := r.beginTurn(ctx, b)
		if err == nil && begun.Status != memory.StatusBegun {
			err = fmt.Errorf("turn %s is new, and was %s", id, begun.Status)
		}
		if err == nil {
			err = moves[move](ctx, b, begun)
		}
		if err == nil {
			err = r.loadSession(ctx)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", r.rounds, err)
		}
		r.mu.Lock()
		r.turns++
		r.mu.Unlock()
	}
}

func newTraceID() string {
	id := uuid.New()
	return fmt.Sprintf("%x", id[:])
}

func leaseFromTurn(b memory.Begin, epoch int64) memory.Lease {
	return memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: epoch}
}

// unexpectedAnswerError returns an error that quotes the request and its answer.
func unexpectedAnswerError(answer error, format string, args ...any) error {
	asked := fmt.Sprintf(format, args...)
	if answer == nil {
		return errors.New(asked)
	}
	return fmt.Errorf("%s: %w", asked, answer)
}

// mustCommit commits a turn that no other caller holds. A rejection is an error.
func (r *sessionRun) mustCommit(ctx context.Context, begun memory.BeginResult, author string) error {
	if accepted, err := r.commit(ctx, r.newCommit(begun, author)); !accepted {
		return unexpectedAnswerError(err, "the holder of turn %s could not commit", begun.Turn.ID)
	}
	return nil
}

// playSingleHolder runs a turn with one holder from begin to commit, and checks the calls after it.
func (r *sessionRun) playSingleHolder(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	if err := r.mustCommit(ctx, begun, "a"); err != nil {
		return err
	}
	c := r.newCommit(begun, "a")
	last, _, err := callUntilAnswered(ctx, r.Run, func(ctx context.Context, s memory.Store) (int64, error) { return s.CommitStep(ctx, c) })
	if err != nil || last != begun.Turn.Sequence+int64(len(c.Messages)) {
		return unexpectedAnswerError(err, "the same commit again: message %d", last)
	}
	r.countReply(Repeated)
	if accepted, err := r.commit(ctx, r.newCommit(begun, "other")); accepted || !failure.Is(err, failure.TurnNotOpen) {
		return unexpectedAnswerError(err, "another commit of a closed turn, want turn_not_open")
	}
	if again, err := r.beginTurn(ctx, b); err != nil || again.Status != memory.StatusClosed || again.Turn.Epoch != begun.Turn.Epoch {
		return unexpectedAnswerError(err, "a closed turn begun again is %s of epoch %d", again.Status, again.Turn.Epoch)
	}
	return nil
}

// playTakeover takes over the turn of a holder that is wrongly believed dead. The holder continues to write and is
// fenced. The successor must find every acknowledged journal entry.
func (r *sessionRun) playTakeover(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	entries := []execution.Entry{
		{Number: 1, Phase: execution.Done, Reply: conversation.Assistant("", "I am going to call a tool.")},
		{Number: 2, Phase: execution.Intent, Tool: "t", Digest: "d", Effect: execution.AtMostOnce},
		{Number: 2, Phase: execution.Done, Tool: "t", Digest: "d", Effect: execution.AtMostOnce, Status: "success", Text: b.TurnID},
	}
	known := r.rng.IntN(len(entries) + 1)
	if known > 0 {
		if err := r.recordJournal(ctx, leaseFromTurn(b, begun.Turn.Epoch), entries[:known]...); err != nil {
			return unexpectedAnswerError(err, "journal of the holder")
		}
	}
	second, err := r.takeOver(ctx, b, begun)
	if err != nil {
		return err
	}
	late, old := r.newCommit(begun, "zombie"), leaseFromTurn(b, begun.Turn.Epoch)
	for _, write := range []struct {
		name string
		call func() error
	}{
		{"commit", func() error { _, err := r.commit(ctx, late); return err }},
		{"record", func() error { return r.recordJournal(ctx, old, execution.Entry{Number: 9, Phase: execution.Done}) }},
		{"renew", func() error { return r.renewLease(ctx, old) }},
	} {
		if err := write.call(); !failure.Is(err, failure.Fenced) {
			return unexpectedAnswerError(err, "late %s of a fenced holder, want fenced", write.name)
		}
	}
	if err := r.checkJournal(ctx, leaseFromTurn(b, second.Turn.Epoch), entries[:known]); err != nil {
		return err
	}
	return r.mustCommit(ctx, second, "b")
}

// takeOver takes a turn over from its holder.
func (r *sessionRun) takeOver(ctx context.Context, b memory.Begin, begun memory.BeginResult) (memory.BeginResult, error) {
	b.LostEpoch = begun.Turn.Epoch
	second, err := r.beginTurn(ctx, b)
	if err != nil {
		return second, unexpectedAnswerError(err, "takeover")
	}
	if second.Status != memory.StatusBegun || second.Turn.Attempt != begun.Turn.Attempt+1 && !isLaterGeneration(begun.Turn, second.Turn) {
		return second, fmt.Errorf("takeover: found %s, attempt %d", second.Status, second.Turn.Attempt)
	}
	return second, nil
}

// checkJournal checks that a successor finds the journal entries of the previous attempt.
func (r *sessionRun) checkJournal(ctx context.Context, h memory.Lease, known []execution.Entry) error {
	found, _, err := callUntilAnswered(ctx, r.Run, func(ctx context.Context, s memory.Store) ([]execution.Entry, error) {
		return s.LoadJournal(ctx, h, 1, 0)
	})
	if err != nil {
		return unexpectedAnswerError(err, "journal of the successor")
	}
	if len(found) != len(known) {
		r.addViolation(CheckJournalKept, "turn %s: the successor finds %d entries, %d were acknowledged", h.TurnID, len(found), len(known))
	}
	if len(known) > 0 {
		other := known[0]
		other.Reply.Text = "Something else."
		if err := r.recordJournal(ctx, h, other); !failure.Is(err, failure.Nondeterminism) {
			return unexpectedAnswerError(err, "another entry for a number, want nondeterminism")
		}
		r.countReply(Nondeterministic)
	}
	return nil
}

// playRace lets the holder of a turn and its successor commit at the same time. Exactly one of the commits must
// succeed.
func (r *sessionRun) playRace(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	var first, second bool
	var firstErr, secondErr error
	var both sync.WaitGroup
	both.Go(func() { first, firstErr = r.commit(ctx, r.newCommit(begun, "a")) })
	both.Go(func() {
		takeover := b
		takeover.LostEpoch = begun.Turn.Epoch
		var next memory.BeginResult
		if next, secondErr = r.beginTurn(ctx, takeover); secondErr == nil && next.Status == memory.StatusBegun {
			second, secondErr = r.commit(ctx, r.newCommit(next, "b"))
		}
	})
	both.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if first == second {
		r.addViolation(CheckReplies, "turn %s: holder committed: %t (%v), successor committed: %t (%v)", b.TurnID, first, firstErr, second, secondErr)
	}
	return nil
}
