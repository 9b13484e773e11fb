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

// Leases of turns: one that outlives an outage of the store, and one that expires.
const (
	lease      = time.Minute
	shortLease = memory.MinLeaseTTL
)

// roundsOfSession is the number of rounds in one session, because each round reads all of it.
const roundsOfSession = 100

// sessionRun runs rounds in one session after the other. One goroutine runs a session; in rounds where two callers
// compete, it waits for both.
type sessionRun struct {
	*Run
	prefix  string // prefix of its sessions
	name    string // name of the current session
	rng     *rand.Rand
	rounds  int
	granted session.Turn // the latest granted turn; used only by the goroutine that begins turns

	unresolved map[string]attempt // rejected writes that may have taken effect, by key; guarded by mu of the Run
}

// run runs rounds until the run finishes. It fails on a response that the store must never give.
func (g *sessionRun) run(ctx context.Context) error {
	moves := []func(context.Context, memory.Begin, memory.BeginResult) error{
		g.playSingleHolder, g.playTakeover, g.playTakeover, g.playRace, g.playRace, g.playProbes, g.playRelease, g.playExpiry,
	}
	for {
		select {
		case <-g.done:
			return g.load(ctx)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if g.rounds++; g.rounds%roundsOfSession == 0 {
			g.name = fmt.Sprintf("%s-%d", g.prefix, g.rounds/roundsOfSession)
		}
		id := fmt.Sprintf("%s-t%d", g.name, g.rounds)
		b := memory.Begin{
			Ref: g.sessionRef(), TurnID: id, TraceID: newTraceID(), Fingerprint: "f", Message: conversation.User(id), LeaseTTL: lease, Window: window,
		}
		move := g.rng.IntN(len(moves))
		if move == len(moves)-1 {
			b.LeaseTTL = shortLease
		}
		begun, err := g.beginTurn(ctx, b)
		if err == nil && begun.Status != memory.StatusBegun {
			err = fmt.Errorf("turn %s is new, and was %s", id, begun.Status)
		}
		if err == nil {
			err = moves[move](ctx, b, begun)
		}
		if err == nil {
			err = g.load(ctx)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", g.rounds, err)
		}
		g.mu.Lock()
		g.turns++
		g.mu.Unlock()
	}
}

func newTraceID() string {
	id := uuid.New()
	return fmt.Sprintf("%x", id[:])
}

func leaseOf(b memory.Begin, epoch int64) memory.Lease {
	return memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: epoch}
}

// answerError returns an error with the request and its answer.
func answerError(answer error, format string, args ...any) error {
	asked := fmt.Sprintf(format, args...)
	if answer == nil {
		return errors.New(asked)
	}
	return fmt.Errorf("%s: %w", asked, answer)
}

// mustCommit commits a turn that no other caller holds.
func (g *sessionRun) mustCommit(ctx context.Context, begun memory.BeginResult, author string) error {
	if accepted, err := g.commit(ctx, g.commitOf(begun, author)); !accepted {
		return answerError(err, "the holder of turn %s could not commit", begun.Turn.ID)
	}
	return nil
}

// playSingleHolder runs a turn with one holder from begin to commit, and checks the calls after it.
func (g *sessionRun) playSingleHolder(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	if err := g.mustCommit(ctx, begun, "a"); err != nil {
		return err
	}
	c := g.commitOf(begun, "a")
	last, _, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) (int64, error) { return s.CommitStep(ctx, c) })
	if err != nil || last != begun.Turn.Sequence+int64(len(c.Messages)) {
		return answerError(err, "the same commit again: message %d", last)
	}
	g.countReply(Repeated)
	if accepted, err := g.commit(ctx, g.commitOf(begun, "other")); accepted || !failure.Is(err, failure.TurnNotOpen) {
		return answerError(err, "another commit of a closed turn, want turn_not_open")
	}
	if again, err := g.beginTurn(ctx, b); err != nil || again.Status != memory.StatusClosed || again.Turn.Epoch != begun.Turn.Epoch {
		return answerError(err, "a closed turn begun again is %s of epoch %d", again.Status, again.Turn.Epoch)
	}
	return nil
}

// playTakeover runs a turn whose holder is believed dead, continues to write, and is fenced. Its successor
// finds every acknowledged entry.
func (g *sessionRun) playTakeover(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	entries := []execution.Entry{
		{Number: 1, Phase: execution.Done, Reply: conversation.Assistant("", "I am going to call a tool.")},
		{Number: 2, Phase: execution.Intent, Tool: "t", Digest: "d", Effect: execution.AtMostOnce},
		{Number: 2, Phase: execution.Done, Tool: "t", Digest: "d", Effect: execution.AtMostOnce, Status: "success", Text: b.TurnID},
	}
	known := g.rng.IntN(len(entries) + 1)
	if known > 0 {
		if err := g.record(ctx, leaseOf(b, begun.Turn.Epoch), entries[:known]...); err != nil {
			return answerError(err, "journal of the holder")
		}
	}
	second, err := g.takeOver(ctx, b, begun)
	if err != nil {
		return err
	}
	late, old := g.commitOf(begun, "zombie"), leaseOf(b, begun.Turn.Epoch)
	for what, write := range map[string]func() error{
		"commit": func() error { _, err := g.commit(ctx, late); return err },
		"record": func() error { return g.record(ctx, old, execution.Entry{Number: 9, Phase: execution.Done}) },
		"renew":  func() error { return g.renew(ctx, old) },
	} {
		if err := write(); !failure.Is(err, failure.Fenced) {
			return answerError(err, "late %s of a fenced holder, want fenced", what)
		}
	}
	if err := g.checkJournal(ctx, leaseOf(b, second.Turn.Epoch), entries[:known]); err != nil {
		return err
	}
	return g.mustCommit(ctx, second, "b")
}

// takeOver takes a turn over from its holder.
func (g *sessionRun) takeOver(ctx context.Context, b memory.Begin, begun memory.BeginResult) (memory.BeginResult, error) {
	b.LostEpoch = begun.Turn.Epoch
	second, err := g.beginTurn(ctx, b)
	if err != nil {
		return second, answerError(err, "takeover")
	}
	if second.Status != memory.StatusBegun || second.Turn.Attempt != begun.Turn.Attempt+1 && !isLaterGeneration(begun.Turn, second.Turn) {
		return second, fmt.Errorf("takeover: found %s, attempt %d", second.Status, second.Turn.Attempt)
	}
	return second, nil
}

// checkJournal checks that a successor finds the journal entries of the attempt before it.
func (g *sessionRun) checkJournal(ctx context.Context, h memory.Lease, known []execution.Entry) error {
	found, _, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) ([]execution.Entry, error) {
		return s.LoadJournal(ctx, h, 1, 0)
	})
	if err != nil {
		return answerError(err, "journal of the successor")
	}
	if len(found) != len(known) {
		g.addViolation(CheckJournalKept, "turn %s: the successor finds %d entries, %d were acknowledged", h.TurnID, len(found), len(known))
	}
	if len(known) > 0 {
		other := known[0]
		other.Reply.Text = "Something else."
		if err := g.record(ctx, h, other); !failure.Is(err, failure.Nondeterminism) {
			return answerError(err, "another entry for a number, want nondeterminism")
		}
		g.countReply(Nondeterministic)
	}
	return nil
}

// playRace lets the holder of a turn and its successor commit at the same time. Exactly one of them must
// succeed.
func (g *sessionRun) playRace(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	var first, second bool
	var firstErr, secondErr error
	var both sync.WaitGroup
	both.Go(func() { first, firstErr = g.commit(ctx, g.commitOf(begun, "a")) })
	both.Go(func() {
		takeover := b
		takeover.LostEpoch = begun.Turn.Epoch
		var next memory.BeginResult
		if next, secondErr = g.beginTurn(ctx, takeover); secondErr == nil && next.Status == memory.StatusBegun {
			second, secondErr = g.commit(ctx, g.commitOf(next, "b"))
		}
	})
	both.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if first == second {
		g.addViolation(CheckReplies, "turn %s: holder committed: %t (%v), successor committed: %t (%v)", b.TurnID, first, firstErr, second, secondErr)
	}
	return nil
}
