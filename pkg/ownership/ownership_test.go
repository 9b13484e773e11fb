package ownership

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Req: SO-2, SO-3, SO-4
func TestOwnerOf_AppliesRulesInOrder(t *testing.T) {
	for key, want := range map[string]Owner{
		"_scratch": Agent, "_trace_id": Agent, "temp:x": Agent,
		"history": Memory, "user_history": Memory, "embeddings": Memory, "facts": Memory, "learned_facts": Memory,
		"preferences": Memory, "memory": Memory, "app:theme": Memory, "user:name": Memory,
		"trace_id": Orchestrator, "routing": Orchestrator, "routing_context": Orchestrator, "parent_context": Orchestrator, "context": Orchestrator,
		"config": Shared,
	} {
		owner, declared := OwnerOf(key)
		require.Equal(t, want, owner, key)
		require.True(t, declared, key)
	}
	owner, declared := OwnerOf("counter")
	require.Equal(t, Agent, owner)
	require.False(t, declared)
}
