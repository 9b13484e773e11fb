// Package ownership decides which tier owns a key of state. Only the owner may write it (contract SO-1). An agent
// owns its working state, the memory service owns everything that outlives a request, and the orchestrator owns
// everything that belongs to a trace.
package ownership

import "strings"

// Owner is a tier of state.
type Owner string

// The owners (SO-1).
const (
	Agent        Owner = "agent"        // state in the RAM of the worker, from its startup to its shutdown
	Memory       Owner = "memory"       // durable state that outlives a request
	Orchestrator Owner = "orchestrator" // state of one trace
	Shared       Owner = "shared"       // state with two owners, under a protocol
)

// ownersByName maps single keys to their owners (SO-2, SO-3).
var ownersByName = map[string]Owner{
	"history": Memory, "user_history": Memory, "embeddings": Memory, "facts": Memory,
	"learned_facts": Memory, "preferences": Memory, "memory": Memory,
	"trace_id": Orchestrator, "routing": Orchestrator, "routing_context": Orchestrator,
	"parent_context": Orchestrator, "context": Orchestrator,
	"config": Shared,
}

// ownersByPrefix maps prefixes of keys to their owners. Prefixes apply before single names, so the agent owns
// "_trace_id" (SO-4).
var ownersByPrefix = []struct {
	prefix string
	owner  Owner
}{{"_", Agent}, {"temp:", Agent}, {"app:", Memory}, {"user:", Memory}}

// OwnerOf returns the owner of a key, and whether a rule covers the key. The agent owns keys without a rule
// (SO-5).
func OwnerOf(key string) (owner Owner, declared bool) { return ownerWithDeclared(key, nil) }

// ownerWithDeclared does the same as OwnerOf, but also applies the keys that an agent declares. Prefix rules apply
// first, then the declared keys, then the rules for single keys.
func ownerWithDeclared(key string, more map[string]Owner) (owner Owner, declared bool) {
	for _, p := range ownersByPrefix {
		if strings.HasPrefix(key, p.prefix) {
			return p.owner, true
		}
	}
	if owner, ok := more[key]; ok {
		return owner, true
	}
	if owner, ok := ownersByName[key]; ok {
		return owner, true
	}
	return Agent, false
}
