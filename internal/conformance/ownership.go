package conformance

import (
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

const (
	ofAgent        = troupev1.Owner_OWNER_AGENT
	ofMemory       = troupev1.Owner_OWNER_MEMORY
	ofOrchestrator = troupev1.Owner_OWNER_ORCHESTRATOR
	ofBoth         = troupev1.Owner_OWNER_SHARED
)

func ownershipChecks() []Check {
	return []Check{
		{
			ID: "ownership/of-the-agent", Requirement: "SO-2", run: owns(ofAgent, "_scratch", "_", "_cache_of_history"),
			Title: "Keys that begin with an underscore are AGENT's, which may write them.",
		},
		{
			ID: "ownership/of-memory", Requirement: "SO-3",
			run:   owns(ofMemory, "history", "user_history", "embeddings", "facts", "learned_facts", "preferences", "memory"),
			Title: "What outlives a request is MEMORY's: history, user_history, embeddings, facts, learned_facts, preferences, memory.",
		},
		{
			ID: "ownership/of-the-orchestrator", Requirement: "SO-3",
			run:   owns(ofOrchestrator, "trace_id", "routing", "routing_context", "context", "parent_context"),
			Title: "What belongs to a trace is ORCHESTRATOR's: trace_id, routing, routing_context, context, parent_context.",
		},
		{
			ID: "ownership/shared", Requirement: "SO-2", run: owns(ofBoth, "config"),
			Title: "config is SHARED, and an agent does not write it.",
		},
		{
			ID: "ownership/underscore-comes-first", Requirement: "SO-4", run: owns(ofAgent, "_trace_id", "_history", "_config"),
			Title: "The rule of the underscore comes before the others: _trace_id is AGENT's.",
		},
		{
			ID: "ownership/unknown-keys", Requirement: "SO-5", run: ownsUnknown,
			Title: "A key that no rule names is AGENT's, and the answer says that no rule names it.",
		},
		{
			ID: "ownership/limits", Requirement: "OwnsStateRequest.key", run: ownsLimits,
			Title: "A key has 1 to 256 bytes; others are refused with USER_INVALID_INPUT.",
		},
		{
			ID: "ownership/inside-agrees", Requirement: "SO-1", run: ownsInside,
			Title: "What an agent may write inside a step is what OwnsState says.",
		},
	}
}

func (in *instance) owner(key string) *troupev1.OwnsStateResponse {
	r, err := in.rpc.OwnsState(in.t.ctx, &troupev1.OwnsStateRequest{Key: key})
	in.t.ok("OwnsState of "+key, err)
	return r
}

func owns(owner troupev1.Owner, keys ...string) func(*trial) {
	return func(t *trial) {
		in := t.make(spec{})
		for _, key := range keys {
			r := in.owner(key)
			equal(t, "owner of "+key, owner, r.GetOwner())
			equal(t, "whether the agent owns "+key, owner == ofAgent, r.GetOwns())
			equal(t, "whether a rule names "+key, true, r.GetDeclared())
		}
	}
}

func ownsUnknown(t *trial) {
	in := t.make(spec{})
	for _, key := range []string{"weather", "my_history", "History", "trace"} {
		r := in.owner(key)
		equal(t, "owner of "+key, ofAgent, r.GetOwner())
		equal(t, "whether the agent owns "+key, true, r.GetOwns())
		equal(t, "whether a rule names "+key, false, r.GetDeclared())
	}
}

func ownsLimits(t *trial) {
	in := t.make(spec{})
	in.owner(strings.Repeat("k", 256))
	for name, key := range map[string]string{"of 0 bytes": "", "of 257 bytes": strings.Repeat("k", 257)} {
		_, err := in.rpc.OwnsState(t.ctx, &troupev1.OwnsStateRequest{Key: key})
		t.refused("OwnsState of a key "+name, err, failure.UserInvalidInput)
	}
}

func ownsInside(t *trial) {
	in := t.ready(spec{})
	for _, key := range []string{"_scratch", "weather", "history", "trace_id", "config"} {
		want := "does not own"
		if in.owner(key).GetOwns() {
			want = "owns"
		}
		equal(t, "answer to own "+key, want, in.says("own "+key))
	}
}
