package ownership_test

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	keys "github.com/troupe-dev/troupe/pkg/ownership"
	domain "github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/ownership"
)

// sdkTrials are forbidden accesses that the SDK must reject. They run in a session without a mesh, whose store
// rejects nothing.
var sdkTrials = map[ownership.Cell][]trial{
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Persist}: {storeKeyTrial(ownerAgent, "agent.persist", "_kept")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:  {setKeyTrial(ownerAgent, "memory.write", "history")},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {
		setKeyTrial(ownerAgent, "orchestrator.write", "trace_id"),
		storeKeyTrial(ownerAgent, "orchestrator.ask", "routing"),
	},

	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Write}: {setKeyTrial("research", "memory.write", "history")},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {
		setKeyTrial("research", "orchestrator.write", "trace_id"),
		storeKeyTrial("research", "orchestrator.ask", "routing"),
	},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Write}: {{
		tryForbidden: func(t *testing.T, _ *mesh) error { return runLocally(t, "research", nil, "shared.set") },
		tryUnguarded: func(t *testing.T, _ *mesh) error { return runLocally(t, ownerAgent, nil, "shared.set") }, // the key belongs to this agent
	}},
}

// setKeyTrial returns a trial that writes a key of another tier into the RAM of the agent. The write succeeds
// if the agent declares the key as its own.
func setKeyTrial(who, deed, key string) trial {
	return trial{
		tryForbidden: func(t *testing.T, _ *mesh) error { return runLocally(t, who, nil, deed) },
		tryUnguarded: func(t *testing.T, _ *mesh) error {
			return runLocally(t, who, map[string]keys.Owner{key: keys.Agent}, deed)
		},
	}
}

// storeKeyTrial returns a trial that stores a key of another tier. The store itself would accept it.
func storeKeyTrial(who, deed, key string) trial {
	return trial{
		tryForbidden: func(t *testing.T, _ *mesh) error { return runLocally(t, who, nil, deed) },
		tryUnguarded: func(t *testing.T, _ *mesh) error {
			_, err := newAcceptingStore().UpdateState(t.Context(), memory.StateUpdate{
				Ref:   domain.Ref{Session: "any"},
				Delta: map[string]json.RawMessage{key: json.RawMessage(`"mine"`)},
			})
			return err
		},
	}
}

// runLocally runs an action in a process without a mesh, and returns its error. It checks that a rejected
// write changed neither the agent nor the store.
func runLocally(t *testing.T, who string, owns map[string]keys.Owner, deed string) error {
	t.Helper()
	made, err := newAgent(who, owns)
	require.NoError(t, err)
	heap := newAcceptingStore()
	s, err := local.Open(t.Context(), made, local.Config{Store: heap, ID: sessionID})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(t.Context())) }()
	said, trespasses := "", 0
	for e, err := range s.Turn(t.Context(), local.Input{Text: deed}) {
		require.NoError(t, err)
		if _, ok := e.Payload.(event.OwnershipViolation); ok {
			trespasses++
		}
		if done, ok := e.Payload.(event.TurnResult); ok {
			said = done.Result.Text
		}
	}
	if said == "ok" {
		return nil
	}
	require.Equal(t, 1, trespasses)
	require.Empty(t, made.State().Keys())
	require.Empty(t, made.Config().Keys())
	require.Empty(t, heap.accepted)
	return failure.New(failure.Mode(said), "test", said)
}

// acceptingStore is a store that accepts every state change, whichever tier owns the key.
type acceptingStore struct {
	*inmem.Store

	mu       sync.Mutex
	accepted map[string]json.RawMessage
}

func newAcceptingStore() *acceptingStore {
	return &acceptingStore{Store: inmem.New(inmem.Config{}), accepted: map[string]json.RawMessage{}}
}

// UpdateState implements memory.State.
func (a *acceptingStore) UpdateState(_ context.Context, u memory.StateUpdate) (int64, error) {
	a.accept(u.Delta)
	return 1, nil
}

// CommitStep implements memory.Turns.
func (a *acceptingStore) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	a.accept(c.State)
	c.State = nil
	return a.Store.CommitStep(ctx, c)
}

func (a *acceptingStore) accept(delta map[string]json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(a.accepted, delta)
}
