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

// window is the number of messages that a call returns.
const window = 1000

// store is one of the connections to the memory service.
func (c *Run) store() memory.Store { return c.stores[rand.IntN(len(c.stores))] }

// callUntilAnswered repeats a call until there is an answer, and counts the tries. After more than one try, an
// earlier one may have taken effect.
func callUntilAnswered[T any](ctx context.Context, c *Run, call func(context.Context, memory.Store) (T, error)) (result T, n int, err error) {
	result, err = retry.Do(ctx, func(ctx context.Context) (T, error) {
		n++
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		return call(ctx, c.store())
	})
	return result, n, err
}

// callTime bounds one try.
const callTime = 5 * time.Second

// beginTurn begins the turn or takes it over, and adds a granted epoch to the history.
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
			g.sessions.Add(call, history.Append{Session: g.name, Key: b.Message.Text}, history.Appended{Sequence: begun.Turn.Sequence})
		}
		g.granted = begun.Turn
		g.epochs.Add(call, history.Grant{Session: g.name}, history.Granted{Epoch: begun.Turn.Epoch})
	}
	return begun, nil
}

// isLaterGeneration reports whether a later epoch belongs to a later generation: a restarted store never grants an old
// epoch again, not even to its holder.
func isLaterGeneration(before, after session.Turn) bool {
	const bits = 32 // of an epoch, below its generation
	return after.Epoch>>bits > before.Epoch>>bits && after.Attempt > before.Attempt
}

// attempt is a write that was rejected in the end, but may have taken effect.
type attempt struct {
	call  int64
	tries int
}

// commit commits a turn and reports whether the store accepted it. A rejection is not an error; callers that
// expect none must check the result.
func (g *sessionRun) commit(ctx context.Context, c memory.Commit) (accepted bool, refusal error) {
	call, key := g.epochs.Now(), commitKey(c)
	last, n, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) (int64, error) { return s.CommitStep(ctx, c) })
	switch {
	case err == nil:
		g.countReply(Committed)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: c.Epoch}, history.Written{})
		g.sessions.Add(call, history.Append{Session: g.name, Key: key}, history.Appended{Sequence: last})
		return true, nil
	case failure.Is(err, failure.Fenced):
		g.countReply(Fenced)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: c.Epoch}, history.Written{Fenced: true})
	case failure.Is(err, failure.TurnNotOpen):
		g.countReply(NotOpen)
	case failure.Is(err, failure.BaseMismatch):
		g.countReply(BaseMismatch)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unresolved[key] = attempt{call, n}
	return false, err
}

// record stores journal entries under an epoch.
func (g *sessionRun) record(ctx context.Context, h memory.Lease, entries ...execution.Entry) error {
	call := g.epochs.Now()
	_, _, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.Record(ctx, h, 1, entries)
	})
	return g.recordWrite(call, h, err)
}

// renew renews the lease under an epoch.
func (g *sessionRun) renew(ctx context.Context, h memory.Lease) error {
	call := g.epochs.Now()
	_, _, err := callUntilAnswered(ctx, g.Run, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.RenewTurn(ctx, h, lease)
	})
	return g.recordWrite(call, h, err)
}

// recordWrite records a write that changes no messages.
func (g *sessionRun) recordWrite(call int64, h memory.Lease, err error) error {
	switch {
	case err == nil:
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: h.Epoch}, history.Written{})
	case failure.Is(err, failure.Fenced):
		g.countReply(Fenced)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: h.Epoch}, history.Written{Fenced: true})
	case failure.Is(err, failure.TurnNotOpen):
		g.countReply(NotOpen)
	}
	return err
}

// load adds the whole session to the history. It also resolves rejected writes: a rejected write that is not
// in the session had no effect.
func (g *sessionRun) load(ctx context.Context) error {
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
	var loaded history.Loaded
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
		loaded.Chain = history.Chain(loaded.Chain, key, m.Sequence)
		g.resolve(key, m.Sequence)
	}
	g.sessions.Add(call, history.Load{Session: g.name}, loaded)
	return nil
}

// resolve records that a rejected write is stored after all.
func (g *sessionRun) resolve(key string, sequence int64) {
	g.mu.Lock()
	refused, ok := g.unresolved[key]
	delete(g.unresolved, key)
	g.mu.Unlock()
	if !ok {
		return
	}
	g.sessions.AddUntil(refused.call, history.Never, history.Append{Session: g.name, Key: key}, history.Appended{Sequence: sequence})
	if refused.tries == 1 {
		g.addViolation(CheckRejectedNotStored, "%s: %s was refused, and is message %d", g.name, key, sequence)
	}
}

// The two messages of a commit are stored together or not at all.
const (
	firstHalf  = "/first"
	secondHalf = "/second"
)

// agent is the name under which all callers commit: mesh.Agent, whose credential they use.
const agent = "chaos"

// commitOf returns the commit of the only step of a turn.
func (g *sessionRun) commitOf(begun memory.BeginResult, author string) memory.Commit {
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
