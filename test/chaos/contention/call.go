package contention

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/chaos/history"
)

// maxReadMessages is the maximum number of messages that one read returns.
const maxReadMessages = 1000

// pickStore returns a random connection to the memory service.
func (r *Run) pickStore() memory.Store { return r.stores[rand.IntN(len(r.stores))] }

// callUntilAnswered repeats a call until it is answered, and returns the number of tries. After more than one try,
// an earlier try may have taken effect.
func callUntilAnswered[T any](ctx context.Context, c *Run, call func(context.Context, memory.Store) (T, error)) (result T, n int, err error) {
	result, err = retry.Do(ctx, func(ctx context.Context) (T, error) {
		n++
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return call(ctx, c.pickStore())
	})
	return result, n, err
}

// callTimeout bounds one try.
const callTimeout = 5 * time.Second

// beginTurn begins or takes over the turn. It adds a granted epoch to the history.
func (r *sessionRun) beginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	call := r.epochs.Now()
	begun, _, err := callUntilAnswered(ctx, r.Run, func(ctx context.Context, s memory.Store) (memory.BeginResult, error) { return s.BeginTurn(ctx, b) })
	if err != nil {
		return begun, err
	}
	switch {
	case begun.Status == memory.StatusOpen:
		r.countReply(Open)
	case begun.Status == memory.StatusClosed:
		r.countReply(Closed)
	case begun.Turn.ID == r.granted.ID && begun.Turn.Epoch == r.granted.Epoch && begun.Turn.Attempt == r.granted.Attempt:
		r.countReply(BegunAgain)
	default:
		if begun.Turn.ID == r.granted.ID {
			r.countReply(TakenOver)
		} else { // the attempt may be a later one: the first answer was lost, and the store restarted
			r.countReply(Begun)
			r.sessions.Add(call, history.Append{Session: r.name, Key: b.Message.Text}, history.AppendResult{Sequence: begun.Turn.Sequence})
		}
		r.granted = begun.Turn
		r.epochs.Add(call, history.EpochRequest{Session: r.name}, history.GrantedEpoch{Epoch: begun.Turn.Epoch})
	}
	return begun, nil
}

// isLaterGeneration reports whether the later epoch belongs to a later generation of the store. A restarted store
// never grants an old epoch again, not even to its holder.
func isLaterGeneration(before, after session.Turn) bool {
	const bits = 32 // number of bits of an epoch below its generation
	return after.Epoch>>bits > before.Epoch>>bits && after.Attempt > before.Attempt
}

// rejectedWrite is a write whose last try was rejected, although an earlier try may have taken effect.
type rejectedWrite struct {
	calledAt int64
	tries    int
}

// commit commits a turn and reports whether the store accepted it. Otherwise it returns the error, and remembers
// the write, because an earlier try may have taken effect.
func (r *sessionRun) commit(ctx context.Context, c memory.Commit) (accepted bool, rejection error) {
	call, key := r.epochs.Now(), commitKey(c)
	last, n, err := callUntilAnswered(ctx, r.Run, func(ctx context.Context, s memory.Store) (int64, error) { return s.CommitStep(ctx, c) })
	switch {
	case err == nil:
		r.countReply(Committed)
		r.epochs.Add(call, history.Write{Session: r.name, Epoch: c.Epoch}, history.WriteResult{})
		r.sessions.Add(call, history.Append{Session: r.name, Key: key}, history.AppendResult{Sequence: last})
		return true, nil
	case failure.Is(err, failure.Fenced):
		r.countReply(Fenced)
		r.epochs.Add(call, history.Write{Session: r.name, Epoch: c.Epoch}, history.WriteResult{Fenced: true})
	case failure.Is(err, failure.TurnNotOpen):
		r.countReply(NotOpen)
	case failure.Is(err, failure.BaseMismatch):
		r.countReply(BaseMismatch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unresolved[key] = rejectedWrite{call, n}
	return false, err
}

// recordJournal stores journal entries under an epoch.
func (r *sessionRun) recordJournal(ctx context.Context, h memory.Lease, entries ...execution.Entry) error {
	call := r.epochs.Now()
	_, _, err := callUntilAnswered(ctx, r.Run, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.Record(ctx, h, 1, entries)
	})
	return r.recordWrite(call, h, err)
}

// renewLease renews the lease under an epoch.
func (r *sessionRun) renewLease(ctx context.Context, h memory.Lease) error {
	call := r.epochs.Now()
	_, _, err := callUntilAnswered(ctx, r.Run, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.RenewTurn(ctx, h, leaseTTL)
	})
	return r.recordWrite(call, h, err)
}

// recordWrite adds a write that changes no messages to the history.
func (r *sessionRun) recordWrite(call int64, h memory.Lease, err error) error {
	switch {
	case err == nil:
		r.epochs.Add(call, history.Write{Session: r.name, Epoch: h.Epoch}, history.WriteResult{})
	case failure.Is(err, failure.Fenced):
		r.countReply(Fenced)
		r.epochs.Add(call, history.Write{Session: r.name, Epoch: h.Epoch}, history.WriteResult{Fenced: true})
	case failure.Is(err, failure.TurnNotOpen):
		r.countReply(NotOpen)
	}
	return err
}

// loadSession reads the whole session into the history. It also resolves rejected writes: one whose messages are
// not in the session had no effect.
func (r *sessionRun) loadSession(ctx context.Context) error {
	call := r.sessions.Now()
	var all []conversation.Message
	for {
		after := int64(len(all))
		page, _, err := callUntilAnswered(ctx, r.Run, func(ctx context.Context, s memory.Store) ([]conversation.Message, error) {
			return s.LoadHistory(ctx, r.sessionRef(), after, maxReadMessages)
		})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	var loaded history.LoadResult
	for i, m := range all {
		if m.Sequence != int64(i+1) {
			r.addViolation(CheckWholeHistory, "%s: message %d has sequence %d", r.name, i+1, m.Sequence)
			break
		}
		key, first := strings.CutSuffix(m.Text, firstHalfSuffix)
		if m.Partial || first {
			continue
		}
		key = strings.TrimSuffix(key, secondHalfSuffix)
		loaded.Sequence = m.Sequence
		loaded.Hash = history.ExtendHash(loaded.Hash, key, m.Sequence)
		r.resolveRejected(key, m.Sequence)
	}
	r.sessions.Add(call, history.Load{Session: r.name}, loaded)
	return nil
}

// resolveRejected adds a rejected write to the history as accepted, because its message was found in the session.
// If the write had only one try, that is a violation.
func (r *sessionRun) resolveRejected(key string, sequence int64) {
	r.mu.Lock()
	refused, ok := r.unresolved[key]
	delete(r.unresolved, key)
	r.mu.Unlock()
	if !ok {
		return
	}
	r.sessions.AddUntil(refused.calledAt, history.Never, history.Append{Session: r.name, Key: key}, history.AppendResult{Sequence: sequence})
	if refused.tries == 1 {
		r.addViolation(CheckRejectedNotStored, "%s: %s was rejected but is message %d", r.name, key, sequence)
	}
}

// The store keeps the two messages of a commit together or not at all.
const (
	firstHalfSuffix  = "/first"
	secondHalfSuffix = "/second"
)

// agent is the agent for which all callers commit. It is mesh.Agent, whose credential they use.
const agent = "chaos"

// newCommit returns the commit of a turn's only step.
func (r *sessionRun) newCommit(begun memory.BeginResult, author string) memory.Commit {
	key := begun.Turn.ID + "-" + author
	return memory.Commit{
		Ref: r.sessionRef(), TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Base: begun.Turn.Sequence,
		Messages: []conversation.Message{conversation.Assistant(author, key+firstHalfSuffix), conversation.Assistant(author, key+secondHalfSuffix)},
		Result:   execution.Result{Step: 1, Agent: agent, Text: key},
		Outcome:  session.OutcomeCompleted,
	}
}

func commitKey(c memory.Commit) string { return c.Result.Text }

func (r *sessionRun) sessionRef() session.Ref { return session.Ref{Session: r.name} }
