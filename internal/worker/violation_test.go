package worker_test

import (
	"context"
	"encoding/json"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// violationsOf returns the ownership violations among the events.
func violationsOf(events []*troupev1.Event) (found []*troupev1.OwnershipViolation) {
	for _, e := range events {
		if v := e.GetOwnershipViolation(); v != nil {
			found = append(found, v)
		}
	}
	return found
}

// A violation by agent code is published even if the code ignores the error.
// Req: SO-6
func TestExecuteStep_PublishesOwnershipViolations(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Say("Done.")), Handlers: []hook.Handler{
		hook.BeforeAgent(func(_ context.Context, t *hook.Turn) (string, error) { _ = t.State().Set("facts", 1); return "", nil }),
	}})
	events, result := readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
	require.Nil(t, result.GetFailure())
	require.Empty(t, cmp.Diff([]*troupev1.OwnershipViolation{{Key: "facts", Owner: "memory", Actor: "a", Operation: "ownership.set"}}, violationsOf(events),
		protocmp.Transform()))
	require.Len(t, r.logs.FilterMessageSnippet("state of another owner").All(), 1)
}

// A step whose commit writes state of another owner fails, publishes the violation, and changes nothing.
// Req: SO-12
func TestExecuteStep_PublishesAViolationInTheCommit(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			yield(event.Event{Payload: event.Message{Text: "Done.", State: map[string]json.RawMessage{"trace_id": json.RawMessage(`"mine"`)}}}, nil)
		}
	}})
	events, result := readStep(t, r.execute(t.Context(), t, s.beginTurn(t, "a", "s1")))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_STATE_VIOLATION, result.GetFailure().GetMode(), "%v", result)
	found := violationsOf(events)
	require.Len(t, found, 1)
	require.Equal(t, "trace_id", found[0].GetKey())
	require.Equal(t, "orchestrator", found[0].GetOwner())
	require.Equal(t, "a", found[0].GetActor())
	_, messages := s.storedSession(t, "s1")
	require.Len(t, messages, 1, "nothing is committed")
}

// OwnsState returns the owner that the agent declared for a key (SO-5).
func TestOwnsState_ReturnsTheDeclaredOwner(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(), Owns: map[string]ownership.Owner{"ledger": ownership.Memory, "history": ownership.Agent}})
	for key, want := range map[string]*troupev1.OwnsStateResponse{
		"ledger":  {Owner: troupev1.Owner_OWNER_MEMORY, Declared: true},
		"history": {Owner: troupev1.Owner_OWNER_AGENT, Owns: true, Declared: true},
		"other":   {Owner: troupev1.Owner_OWNER_AGENT, Owns: true},
		"config":  {Owner: troupev1.Owner_OWNER_SHARED, Declared: true},
	} {
		got, err := r.OwnsState(t.Context(), &troupev1.OwnsStateRequest{Key: key})
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got, protocmp.Transform()), key)
	}
}
