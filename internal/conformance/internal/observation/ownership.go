package observation

import (
	"strings"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// The owners of state.
const (
	OfAgent        = troupev1.Owner_OWNER_AGENT
	OfMemory       = troupev1.Owner_OWNER_MEMORY
	OfOrchestrator = troupev1.Owner_OWNER_ORCHESTRATOR
	OfBoth         = troupev1.Owner_OWNER_SHARED
)

func ownershipChecks() []check.Check {
	return []check.Check{
		{
			ID: "ownership/of-the-agent", Requirement: "SO-2", Run: owns(OfAgent, "_scratch", "_", "_cache_of_history"),
			Title: "Keys that begin with an underscore are AGENT's, which may write them.",
		},
		{
			ID: "ownership/of-memory", Requirement: "SO-3",
			Run:   owns(OfMemory, "history", "user_history", "embeddings", "facts", "learned_facts", "preferences", "memory"),
			Title: "What outlives a request is MEMORY's: history, user_history, embeddings, facts, learned_facts, preferences, memory.",
		},
		{
			ID: "ownership/of-the-orchestrator", Requirement: "SO-3",
			Run:   owns(OfOrchestrator, "trace_id", "routing", "routing_context", "context", "parent_context"),
			Title: "What belongs to a trace is ORCHESTRATOR's: trace_id, routing, routing_context, context, parent_context.",
		},
		{
			ID: "ownership/shared", Requirement: "SO-2", Run: owns(OfBoth, "config"),
			Title: "config is SHARED, and an agent does not write it.",
		},
		{
			ID: "ownership/underscore-comes-first", Requirement: "SO-4", Run: owns(OfAgent, "_trace_id", "_history", "_config"),
			Title: "The rule of the underscore comes before the others: _trace_id is AGENT's.",
		},
		{
			ID: "ownership/unknown-keys", Requirement: "SO-5", Run: ownsUnknown,
			Title: "A key that no rule names is AGENT's, and the answer says that no rule names it.",
		},
		{
			ID: "ownership/limits", Requirement: "OwnsStateRequest.key", Run: ownsLimits,
			Title: "A key has 1 to 256 bytes; others are refused with USER_INVALID_INPUT.",
		},
		{
			ID: "ownership/inside-agrees", Requirement: "SO-1", Run: ownsInside,
			Title: "What an agent may write inside a step is what OwnsState says.",
		},
	}
}

func owns(owner troupev1.Owner, keys ...string) func(*check.T) {
	return func(t *check.T) {
		in := t.MakeInstance(check.InstanceSpec{})
		for _, key := range keys {
			r := in.OwnsState(key)
			check.Equal(t, "owner of "+key, owner, r.GetOwner())
			check.Equal(t, "whether the agent owns "+key, owner == OfAgent, r.GetOwns())
			check.Equal(t, "whether a rule names "+key, true, r.GetDeclared())
		}
	}
}

func ownsUnknown(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{})
	for _, key := range []string{"weather", "my_history", "History", "trace"} {
		r := in.OwnsState(key)
		check.Equal(t, "owner of "+key, OfAgent, r.GetOwner())
		check.Equal(t, "whether the agent owns "+key, true, r.GetOwns())
		check.Equal(t, "whether a rule names "+key, false, r.GetDeclared())
	}
}

func ownsLimits(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{})
	in.OwnsState(strings.Repeat("k", 256))
	for name, key := range map[string]string{"of 0 bytes": "", "of 257 bytes": strings.Repeat("k", 257)} {
		_, err := in.Lifecycle.OwnsState(t.Ctx, &troupev1.OwnsStateRequest{Key: key})
		t.Rejected("OwnsState of a key "+name, err, failure.UserInvalidInput)
	}
}

func ownsInside(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for _, key := range []string{"_scratch", "weather", "history", "trace_id", "config"} {
		want := "does not own"
		if in.OwnsState(key).GetOwns() {
			want = "owns"
		}
		check.Equal(t, "answer to own "+key, want, in.Say("own "+key))
	}
}
