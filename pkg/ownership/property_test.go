package ownership

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

var allOwners = []Owner{Agent, Memory, Orchestrator, Shared}

// anyKey generates a key that a rule names, a key with a prefix from a rule, or a key that no rule covers.
func anyKey(r *rand.Rand) string {
	known := []string{
		"history", "user_history", "embeddings", "facts", "learned_facts", "preferences", "memory",
		"trace_id", "routing", "routing_context", "parent_context", "context", "config", "", "_", "temp:", "app:", "user:",
	}
	key := known[r.IntN(len(known))]
	switch r.IntN(3) {
	case 0:
		return key
	case 1:
		return []string{"_", "temp:", "app:", "user:", "x_"}[r.IntN(5)] + key
	default:
		return fmt.Sprintf("%s%c%d", key, rune('a'+r.IntN(26)), r.IntN(5))
	}
}

// Each key has exactly one owner, whatever keys an agent declares. Every lookup returns the same owner, and an
// agent can write exactly its own keys.
// Req: SO-1
func TestOwner_EachKeyHasExactlyOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[Owner]int{}
	for range 500 {
		declared := map[string]Owner{}
		for range r.IntN(6) {
			declared[anyKey(r)] = allOwners[r.IntN(len(allOwners))]
		}
		state := NewAgentState("clerk", declared, nil)
		for range 20 {
			key := anyKey(r)
			owner, known := state.Owner(key)
			require.Contains(t, allOwners, owner, "%q", key)
			again, _ := state.Owner(key)
			require.Equal(t, owner, again, "%q", key)
			if !known {
				require.Equal(t, Agent, owner, "%q: no rule claims it", key)
			}
			seen[owner]++

			before := state.Keys()
			err := state.Set(key, 1)
			if owner == Agent {
				require.NoError(t, err, "%q", key)
				require.NoError(t, state.Delete(key))
				continue
			}
			require.True(t, failure.Is(err, failure.StateViolation), "%q of %s: %v", key, owner, err)
			require.True(t, failure.Is(state.Delete(key), failure.StateViolation), "%q of %s", key, owner)
			require.Equal(t, before, state.Keys())
		}
	}
	for _, tier := range allOwners {
		require.Positive(t, seen[tier], "no key of %s was tried", tier)
	}
}
