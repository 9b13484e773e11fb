// Package ownership says which tier owns a key of state. Only the owner writes it (contract SO-1). An agent owns
// its working state, the memory service owns what outlives a request, and the orchestrator owns what belongs to a
// trace.
package ownership

import "strings"

// Owner is a tier of state.
type Owner string

// The owners (SO-1).
const (
	Agent        Owner = "agent"        // RAM of the worker, from its startup to its shutdown
	Memory       Owner = "memory"       // durable, across requests
	Orchestrator Owner = "orchestrator" // of one trace
	Shared       Owner = "shared"       // two owners, under a protocol
)

// names maps single keys to their owners (SO-2, SO-3).
var names = map[string]Owner{
	"history": Memory, "user_history": Memory, "embeddings": Memory, "facts": Memory,
	"learned_facts": Memory, "preferences": Memory, "memory": Memory,
	"trace_id": Orchestrator, "routing": Orchestrator, "routing_context": Orchestrator,
	"parent_context": Orchestrator, "context": Orchestrator,
	"config": Shared,
}

// prefixes maps prefixes of keys to their owners. They apply before names, so the agent owns "_trace_id" (SO-4).
var prefixes = []struct {
	prefix string
	owner  Owner
}{{"_", Agent}, {"temp:", Agent}, {"app:", Memory}, {"user:", Memory}}

// OwnerOf returns the owner of a key, and whether a rule covers the key. The agent owns keys without a rule
// (SO-5).
func OwnerOf(key string) (owner Owner, declared bool) { return ownerWithDeclared(key, nil) }

// ownerWithDeclared works like OwnerOf with additional declared keys. Prefix rules apply first, then the declared
// keys, then the rules for single keys.
func ownerWithDeclared(key string, more map[string]Owner) (owner Owner, declared bool) {
	for _, p := range prefixes {
		if strings.HasPrefix(key, p.prefix) {
			return p.owner, true
		}
	}
	if owner, ok := more[key]; ok {
		return owner, true
	}
	if owner, ok := names[key]; ok {
		return owner, true
	}
	return Agent, false
}
