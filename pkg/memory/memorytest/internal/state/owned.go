package state

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/session"
)

func ownedTests() fixture.Tests {
	return fixture.Tests{"State_AcceptsOnlyKeysOfTheMemoryTier": stateAcceptsOnlyKeysOfTheMemoryTier}
}

// The store accepts keys of the MEMORY tier and keys that no rule covers. A single key of another tier rejects the
// whole change.
// Req: SO-1
func stateAcceptsOnlyKeysOfTheMemoryTier(t *testing.T, store memory.Store) {
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same keys in every run
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	names := []string{
		"history", "user_history", "embeddings", "facts", "learned_facts", "preferences", "memory", "trace_id", "routing",
		"routing_context", "parent_context", "context", "config", "mood", "topic",
	}
	for range 60 {
		key := []string{"", "", "_", "temp:"}[r.IntN(4)] + names[r.IntN(len(names))]
		owner, declared := ownership.OwnerOf(key)
		u := memory.StateUpdate{Ref: ref, RequestID: fixture.UniqueName("r"), Delta: map[string]json.RawMessage{key: json.RawMessage("1")}}
		if owner == ownership.Memory || !declared {
			fixture.UpdateState(t, store, u)
			continue
		}
		before := fixture.ReadSession(t, store, ref)
		_, err := store.UpdateState(t.Context(), u)
		fixture.RequireMode(t, err, failure.StateViolation, "key", key, "owner", string(owner))
		c := fixture.NewCommit(ref, turn, "hi", session.OutcomeCompleted)
		c.State = map[string]json.RawMessage{"mood": json.RawMessage("2"), key: json.RawMessage("1")}
		_, err = store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.StateViolation, "key", key, "owner", string(owner))
		require.Equal(t, before, fixture.ReadSession(t, store, ref), "%q", key)
	}
}
