package observation

import (
	"strings"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// The owners of state.
const (
	OwnedByAgent        = troupev1.Owner_OWNER_AGENT
	OwnedByMemory       = troupev1.Owner_OWNER_MEMORY
	OwnedByOrchestrator = troupev1.Owner_OWNER_ORCHESTRATOR
	OwnedByBoth         = troupev1.Owner_OWNER_SHARED
)

func ownershipChecks() []check.Check {
	return []check.Check{
		{
			ID: "ownership/of-the-agent", Requirement: "SO-2", Run: ownerCheck(OwnedByAgent, "_scratch", "_", "_cache_of_history"),
			Title: "Keys that begin with an underscore belong to AGENT, which may write them.",
		},
		{
			ID: "ownership/of-memory", Requirement: "SO-3",
			Run:   ownerCheck(OwnedByMemory, "history", "user_history", "embeddings", "facts", "learned_facts", "preferences", "memory"),
			Title: "Keys that outlive a request belong to MEMORY: history, user_history, embeddings, facts, learned_facts, preferences, memory.",
		},
		{
			ID: "ownership/of-the-orchestrator", Requirement: "SO-3",
			Run:   ownerCheck(OwnedByOrchestrator, "trace_id", "routing", "routing_context", "context", "parent_context"),
			Title: "Keys of a trace belong to ORCHESTRATOR: trace_id, routing, routing_context, context, parent_context.",
		},
		{
			ID: "ownership/shared", Requirement: "SO-2", Run: ownerCheck(OwnedByBoth, "config"),
			Title: "config is SHARED, and an agent may not write it.",
		},
		{
			ID: "ownership/underscore-comes-first", Requirement: "SO-4", Run: ownerCheck(OwnedByAgent, "_trace_id", "_history", "_config"),
			Title: "The underscore rule takes precedence over the other rules: _trace_id belongs to AGENT.",
		},
		{
			ID: "ownership/unknown-keys", Requirement: "SO-5", Run: checkOwnerOfUnknownKeys,
			Title: "A key without a rule belongs to AGENT, and the answer says that no rule declares it.",
		},
		{
			ID: "ownership/limits", Requirement: "OwnsStateRequest.key", Run: checkOwnershipKeyLimits,
			Title: "A key has 1 to 256 bytes; others are rejected with USER_INVALID_INPUT.",
		},
		{
			ID: "ownership/step-agrees", Requirement: "SO-1", Run: checkOwnershipInsideStep,
			Title: "Inside a step an agent may write exactly the keys that OwnsState allows.",
		},
	}
}

func ownerCheck(owner troupev1.Owner, keys ...string) func(*check.T) {
	return func(t *check.T) {
		in := t.MakeInstance(check.InstanceSpec{})
		for _, key := range keys {
			r := in.OwnsState(key)
			check.Equal(t, "owner of "+key, owner, r.GetOwner())
			check.Equal(t, "whether the agent owns "+key, owner == OwnedByAgent, r.GetOwns())
			check.Equal(t, "whether a rule names "+key, true, r.GetDeclared())
		}
	}
}

func checkOwnerOfUnknownKeys(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{})
	for _, key := range []string{"weather", "my_history", "History", "trace"} {
		r := in.OwnsState(key)
		check.Equal(t, "owner of "+key, OwnedByAgent, r.GetOwner())
		check.Equal(t, "whether the agent owns "+key, true, r.GetOwns())
		check.Equal(t, "whether a rule names "+key, false, r.GetDeclared())
	}
}

func checkOwnershipKeyLimits(t *check.T) {
	in := t.MakeInstance(check.InstanceSpec{})
	in.OwnsState(strings.Repeat("k", 256))
	for name, key := range map[string]string{"of 0 bytes": "", "of 257 bytes": strings.Repeat("k", 257)} {
		_, err := in.Lifecycle.OwnsState(t.Ctx, &troupev1.OwnsStateRequest{Key: key})
		t.ErrorHasMode("OwnsState of a key "+name, err, failure.UserInvalidInput)
	}
}

func checkOwnershipInsideStep(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for _, key := range []string{"_scratch", "weather", "history", "trace_id", "config"} {
		want := "does not own"
		if in.OwnsState(key).GetOwns() {
			want = "owns"
		}
		check.Equal(t, "answer to own "+key, want, in.RunStep("own "+key))
	}
}
