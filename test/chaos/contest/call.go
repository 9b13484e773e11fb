package contest

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

// window is how many messages a call returns.
const window = 1000

// store is one of the ways to the memory service.
func (c *Contest) store() memory.Store { return c.stores[rand.IntN(len(c.stores))] }

// tries calls until there is an answer, and counts the calls. More than one means that one
// before the last may have had its effect.
func tries[T any](ctx context.Context, c *Contest, call func(context.Context, memory.Store) (T, error)) (result T, n int, err error) {
	result, err = retry.Do(ctx, func(ctx context.Context) (T, error) {
		n++
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		return call(ctx, c.store())
	})
	return result, n, err
}

// callTime is how long one try may take.
const callTime = 5 * time.Second

// begin begins the turn or takes it over, and adds a granted epoch to the history.
func (g *game) begin(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	call := g.epochs.Now()
	begun, _, err := tries(ctx, g.Contest, func(ctx context.Context, s memory.Store) (memory.Begun, error) { return s.BeginTurn(ctx, b) })
	if err != nil {
		return begun, err
	}
	switch {
	case begun.Status == memory.StatusOpen:
		g.saw(Open)
	case begun.Status == memory.StatusClosed:
		g.saw(Closed)
	case begun.Turn.ID == g.granted.ID && begun.Turn.Epoch == g.granted.Epoch && begun.Turn.Attempt == g.granted.Attempt:
		g.saw(BegunAgain)
	default:
		if begun.Turn.ID == g.granted.ID {
			g.saw(TakenOver)
		} else { // its attempt may be a later one: the answer to the first was lost, and the store began anew
			g.saw(Begun)
			g.sessions.Add(call, history.Append{Session: g.name, Key: b.Message.Text}, history.Appended{Sequence: begun.Turn.Sequence})
		}
		g.granted = begun.Turn
		g.epochs.Add(call, history.Grant{Session: g.name}, history.Granted{Epoch: begun.Turn.Epoch})
	}
	return begun, nil
}

// renewed reports whether a later epoch belongs to a later generation: the store restarted and grants no old
// epoch again, not even to its holder.
func renewed(before, after session.Turn) bool {
	const bits = 32 // of an epoch, below its generation
	return after.Epoch>>bits > before.Epoch>>bits && after.Attempt > before.Attempt
}

// attempt is a write that may have happened although it was refused in the end.
type attempt struct {
	call  int64
	tries int
}

// commit commits and reports whether that was accepted. A rejection is not an error; callers that expect none
// check for it.
func (g *game) commit(ctx context.Context, c memory.Commit) (accepted bool, refusal error) {
	call, key := g.epochs.Now(), keyOf(c)
	last, n, err := tries(ctx, g.Contest, func(ctx context.Context, s memory.Store) (int64, error) { return s.CommitStep(ctx, c) })
	switch {
	case err == nil:
		g.saw(Committed)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: c.Epoch}, history.Written{})
		g.sessions.Add(call, history.Append{Session: g.name, Key: key}, history.Appended{Sequence: last})
		return true, nil
	case failure.Is(err, failure.Fenced):
		g.saw(Fenced)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: c.Epoch}, history.Written{Fenced: true})
	case failure.Is(err, failure.TurnNotOpen):
		g.saw(NotOpen)
	case failure.Is(err, failure.BaseMismatch):
		g.saw(BaseMismatch)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unresolved[key] = attempt{call, n}
	return false, err
}

// record stores journal entries under an epoch.
func (g *game) record(ctx context.Context, h memory.Lease, entries ...execution.Entry) error {
	call := g.epochs.Now()
	_, _, err := tries(ctx, g.Contest, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.Record(ctx, h, 1, entries)
	})
	return g.wrote(call, h, err)
}

// renew renews the lease under an epoch.
func (g *game) renew(ctx context.Context, h memory.Lease) error {
	call := g.epochs.Now()
	_, _, err := tries(ctx, g.Contest, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.RenewTurn(ctx, h, lease)
	})
	return g.wrote(call, h, err)
}

// wrote notes a write that changes no messages.
func (g *game) wrote(call int64, h memory.Lease, err error) error {
	switch {
	case err == nil:
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: h.Epoch}, history.Written{})
	case failure.Is(err, failure.Fenced):
		g.saw(Fenced)
		g.epochs.Add(call, history.Write{Session: g.name, Epoch: h.Epoch}, history.Written{Fenced: true})
	case failure.Is(err, failure.TurnNotOpen):
		g.saw(NotOpen)
	}
	return err
}

// load reads the whole session into the history, and finds what became of writes that were
// refused: nothing, unless one of their tries had got through.
func (g *game) load(ctx context.Context) error {
	call := g.sessions.Now()
	var all []conversation.Message
	for {
		after := int64(len(all))
		page, _, err := tries(ctx, g.Contest, func(ctx context.Context, s memory.Store) ([]conversation.Message, error) {
			return s.LoadHistory(ctx, g.ref(), after, window)
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
			g.violated(Whole, "%s: message %d has sequence %d", g.name, i+1, m.Sequence)
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

// resolve takes a write that was refused and is stored.
func (g *game) resolve(key string, sequence int64) {
	g.mu.Lock()
	refused, ok := g.unresolved[key]
	delete(g.unresolved, key)
	g.mu.Unlock()
	if !ok {
		return
	}
	g.sessions.AddUntil(refused.call, history.Never, history.Append{Session: g.name, Key: key}, history.Appended{Sequence: sequence})
	if refused.tries == 1 {
		g.violated(Refused, "%s: %s was refused, and is message %d", g.name, key, sequence)
	}
}

// A commit has two messages, which are there together or not at all.
const (
	firstHalf  = "/first"
	secondHalf = "/second"
)

// agent is as whose worker all authors commit: mesh.Agent, whose credential they show.
const agent = "chaos"

// commitOf is a commit of a turn's only step.
func (g *game) commitOf(begun memory.Begun, author string) memory.Commit {
	key := begun.Turn.ID + "-" + author
	return memory.Commit{
		Ref: g.ref(), TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Base: begun.Turn.Sequence,
		Messages: []conversation.Message{conversation.Assistant(author, key+firstHalf), conversation.Assistant(author, key+secondHalf)},
		Result:   execution.Result{Step: 1, Agent: agent, Text: key},
		Outcome:  session.OutcomeCompleted,
	}
}

func keyOf(c memory.Commit) string { return c.Result.Text }

func (g *game) ref() session.Ref { return session.Ref{Session: g.name} }
