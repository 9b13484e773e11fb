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

// window is the maximum number of messages that one read returns.
const window = 1000

// pickStore returns a random connection to the memory service.
func (c *Run) pickStore() memory.Store { return c.stores[rand.IntN(len(c.stores))] }

// callUntilAnswered repeats a call until it is answered, and returns the number of tries. After more than one try,
// an earlier try may have taken effect.
func callUntilAnswered[T any](ctx context.Context, c *Run, call func(context.Context, memory.Store) (T, error)) (result T, n int, err error) {
	result, err = retry.Do(ctx, func(ctx context.Context) (T, error) {
		n++
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		return call(ctx, c.pickStore())
	})
	return result, n, err
}

// callTime bounds one try.
const callTime = 5 * time.Second

// beginTurn begins or takes over the turn. It adds a granted epoch to the history.
func (g *sessionRun) beginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	call := g.epochs.Now()
	begun, _, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) (memory.BeginResult, error) { return s.BeginTurn(ctx, b) })
	if err != nil {
		return begun, err
	}
	switch {
	case begun.Status == memory.StatusOpen:
		g.countReply(Open)
	case begun.Status == memory.StatusClosed:
		g.countReply(Closed)
	case begun.Turn.ID == g.granted.ID && begun.Turn.Epoch == g.granted.Epoch && begun.Turn.Attempt == g.granted.Attempt:
		g.countReply(BegunAgain)
	default:
		if begun.Turn.ID == g.granted.ID {
			g.countReply(TakenOver)
		} else { // the attempt may be a later one: the first answer was lost, and the store restarted
			g.countReply(Begun)
			g.sessions.Add(call, history.Append{Session: g.name, Key: b.Message.Text}, history.AppendResult{Sequence: begun.Turn.Sequence})
		}
		g.granted = begun.Turn
		g.epochs.Add(call, history.EpochRequest{Session: g.name}, history.GrantedEpoch{Epoch: begun.Turn.Epoch})
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

// commit commits a turn and reports whether the store accepted it. A rejection is not returned as an error.
// Callers that expect none must check the result.
func (g *sessionRun) commit(ctx context.Context, c memory.Commit) (accepted bool, rejection error) {
	call, key := g.epochs.Now(), commitKey(c)
	last, n, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) (int64, error) { return s.CommitStep(ctx, c) })
	switch {
	case err == nil:
		g.countReply(Committed)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: c.Epoch}, history.WriteResult{})
		g.sessions.Add(call, history.Append{Session: g.name, Key: key}, history.AppendResult{Sequence: last})
		return true, nil
	case failure.Is(err, failure.Fenced):
		g.countReply(Fenced)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: c.Epoch}, history.WriteResult{Fenced: true})
	case failure.Is(err, failure.TurnNotOpen):
		g.countReply(NotOpen)
	case failure.Is(err, failure.BaseMismatch):
		g.countReply(BaseMismatch)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unresolved[key] = rejectedWrite{call, n}
	return false, err
}

// recordJournal stores journal entries under an epoch.
func (g *sessionRun) recordJournal(ctx context.Context, h memory.Lease, entries ...execution.Entry) error {
	call := g.epochs.Now()
	_, _, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.Record(ctx, h, 1, entries)
	})
	return g.recordWrite(call, h, err)
}

// renewLease renews the lease under an epoch.
func (g *sessionRun) renewLease(ctx context.Context, h memory.Lease) error {
	call := g.epochs.Now()
	_, _, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.RenewTurn(ctx, h, lease)
	})
	return g.recordWrite(call, h, err)
}

// recordWrite adds a write that changes no messages to the history.
func (g *sessionRun) recordWrite(call int64, h memory.Lease, err error) error {
	switch {
	case err == nil:
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: h.Epoch}, history.WriteResult{})
	case failure.Is(err, failure.Fenced):
		g.countReply(Fenced)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: h.Epoch}, history.WriteResult{Fenced: true})
	case failure.Is(err, failure.TurnNotOpen):
		g.countReply(NotOpen)
	}
	return err
}

// loadSession reads the whole session into the history. It also resolves rejected writes: one whose messages are
// not in the session had no effect.
func (g *sessionRun) loadSession(ctx context.Context) error {
	call := g.sessions.Now()
	var all []conversation.Message
	for {
		after := int64(len(all))
		page, _, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) ([]conversation.Message, error) {
			return s.LoadHistory(ctx, g.sessionRef(), after, window)
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
			g.addViolation(CheckWholeHistory, "%s: message %d has sequence %d", g.name, i+1, m.Sequence)
			break
		}
		key, first := strings.CutSuffix(m.Text, firstHalf)
		if m.Partial || first {
			continue
		}
		key = strings.TrimSuffix(key, secondHalf)
		loaded.Sequence = m.Sequence
		loaded.Hash = history.ExtendHash(loaded.Hash, key, m.Sequence)
		g.resolveRejected(key, m.Sequence)
	}
	g.sessions.Add(call, history.Load{Session: g.name}, loaded)
	return nil
}

// resolveRejected adds a rejected write to the history as accepted, because its message was found in the session.
func (g *sessionRun) resolveRejected(key string, sequence int64) {
	g.mu.Lock()
	refused, ok := g.unresolved[key]
	delete(g.unresolved, key)
	g.mu.Unlock()
	if !ok {
		return
	}
	g.sessions.AddUntil(refused.calledAt, history.Never, history.Append{Session: g.name, Key: key}, history.AppendResult{Sequence: sequence})
	if refused.tries == 1 {
		g.addViolation(CheckRejectedNotStored, "%s: %s was rejected but is message %d", g.name, key, sequence)
	}
}

// The store keeps the two messages of a commit together or not at all.
const (
	firstHalf  = "/first"
	secondHalf = "/second"
)

// agent is the agent for which all callers commit. It is mesh.Agent, whose credential they use.
const agent = "chaos"

// newCommit returns the commit of a turn's only step.
func (g *sessionRun) newCommit(begun memory.BeginResult, author string) memory.Commit {
	key := begun.Turn.ID + "-" + author
	return memory.Commit{
		Ref: g.sessionRef(), TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Base: begun.Turn.Sequence,
		Messages: []conversation.Message{conversation.Assistant(author, key+firstHalf), conversation.Assistant(author, key+secondHalf)},
		Result:   execution.Result{Step: 1, Agent: agent, Text: key},
		Outcome:  session.OutcomeCompleted,
	}
}

func commitKey(c memory.Commit) string { return c.Result.Text }

func (g *sessionRun) sessionRef() session.Ref { return session.Ref{Session: g.name} }
