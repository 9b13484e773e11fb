package ownership_test

import (
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/pkg/ownership"
)

// The name of a key decides which tier owns it. An agent owns every key for which there is no rule.
func ExampleOwnerOf() {
	for _, key := range []string{"user:name", "trace_id", "_cache", "visits"} {
		owner, declared := ownership.OwnerOf(key)
		fmt.Fprintln(os.Stdout, key, owner, declared)
	}
	// Output:
	// user:name memory true
	// trace_id orchestrator true
	// _cache agent true
	// visits agent false
}

// An agent can write its own keys. Writes to keys of other tiers are rejected.
func ExampleAgentState() {
	state := ownership.NewAgentState("clerk", map[string]ownership.Owner{"ledger": ownership.Agent}, nil)
	fmt.Fprintln(os.Stdout, state.Set("ledger", []int{1, 2}))
	fmt.Fprintln(os.Stdout, state.Set("user:name", "Ann"))
	value, _ := state.Get("ledger")
	fmt.Fprintln(os.Stdout, value, state.Keys())
	// Output:
	// <nil>
	// ownership.set: state_violation: state "user:name" is owned by memory, but clerk attempted to modify it
	// [1 2] [ledger]
}

// A TraceView can only be read: it has no methods that write.
func ExampleTraceView() {
	trace := ownership.NewTraceView(map[string]string{"trace_id": "4bf92f35"})
	id, known := trace.Get("trace_id")
	fmt.Fprintln(os.Stdout, id, known, trace.Keys())
	// Output:
	// 4bf92f35 true [trace_id]
}
