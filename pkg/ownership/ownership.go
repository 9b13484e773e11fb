// Package ownership says which tier owns a key of state. Only the owner writes it: an agent
// its own, the memory service what outlives a request, the orchestrator what belongs to a
// trace (contract SO-1).
package ownership

import "strings"

// Owner is a tier.
type Owner string

// The owners (SO-1).
const (
	Agent        Owner = "agent"        // RAM of the worker, from its startup to its shutdown
	Memory       Owner = "memory"       // durable, across requests
	Orchestrator Owner = "orchestrator" // of one trace
	Shared       Owner = "shared"       // two owners, under a protocol of their own
)

// names are the keys that a rule names one by one (SO-2, SO-3).
var names = map[string]Owner{
	"history": Memory, "user_history": Memory, "embeddings": Memory, "facts": Memory,
	"learned_facts": Memory, "preferences": Memory, "memory": Memory,
	"trace_id": Orchestrator, "routing": Orchestrator, "routing_context": Orchestrator,
	"parent_context": Orchestrator, "context": Orchestrator,
	"config": Shared,
}

// prefixes are the rules for families of keys. They come first, so that "_trace_id" is an
// agent's own (SO-4).
var prefixes = []struct {
	prefix string
	owner  Owner
}{{"_", Agent}, {"temp:", Agent}, {"app:", Memory}, {"user:", Memory}}

// Of returns who owns a key, and whether a rule names it. A key that no rule names is the
// agent's (SO-5).
func Of(key string) (owner Owner, declared bool) { return of(key, nil) }

// of is Of where more keys may be declared: rules for families come first, and then what was
// declared.
func of(key string, more map[string]Owner) (owner Owner, declared bool) {
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
