package replay

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

var ref = session.Ref{Tenant: "default", Session: "s1"}

// researchTurn returns a turn of the research assistant: coordinator, research, synthesis.
func researchTurn(t *testing.T) (*Replayer, *recordedTurn) {
	t.Helper()
	flows, err := workflow.Load(researchassistant.FS, "")
	require.NoError(t, err)
	flow, _ := flows.Find("")
	was := &recordedTurn{
		ref:    ref,
		record: &troupev1.Trace{TurnId: "t1", Turn: 1, Target: flow.Name, Result: &troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED}},
		results: map[int]*troupev1.StepResult{
			1: {Step: 1, Agent: "coordinator", NextAgent: "research", Sequence: 1},
			2: {Step: 2, Agent: "research", Text: "Found it.", Sequence: 2},
			3: {Step: 3, Agent: "synthesis", Text: "That is it.", Sequence: 3},
		},
	}
	was.decisions = map[int]*troupev1.RoutingDecision{}
	course, err := cursor.New(flow, userMessages(), nil)
	require.NoError(t, err)
	for len(course.Round()) > 0 {
		var results []execution.Result
		for _, task := range course.Round() {
			was.decisions[task.Number] = task.Decision.Proto()
			results = append(results, wire.ResultFromProto(was.results[task.Number]))
		}
		require.NoError(t, course.Advance(results))
	}
	require.Len(t, was.decisions, 3)
	return &Replayer{Workflows: flows, Memory: inmem.New(inmem.Config{KeepJournals: time.Hour})}, was
}

func userMessages() []conversation.Message {
	return []conversation.Message{{Sequence: 1, Role: conversation.RoleUser, Text: "What may an agent write?"}}
}

func TestReplayer_RepeatsTheDecisions(t *testing.T) {
	r, was := researchTurn(t)
	same, differs := r.replayDecisions(was, userMessages())
	require.Nil(t, differs)
	require.EqualValues(t, 3, same)
}

// The trace of a turn that continues an earlier one has no decisions about the earlier steps.
func TestReplayer_SkipsDecisionsOfAnEarlierTrace(t *testing.T) {
	r, was := researchTurn(t)
	delete(was.decisions, 1)
	delete(was.results, 1)
	same, differs := r.replayDecisions(was, userMessages())
	require.Nil(t, differs)
	require.Zero(t, same)
}

func TestReplayer_ReportsTheFirstDifferentDecision(t *testing.T) {
	for name, test := range map[string]struct {
		change        func(was *recordedTurn)
		same          int32
		recorded, now string
	}{
		"to another agent": {
			change: func(was *recordedTurn) {
				was.decisions[2].Step, was.decisions[2].Target = "clarification", "clarification"
			},
			same:     1,
			recorded: "clarification by agent clarification (learned): coordinator chose research",
			now:      "research by agent research (learned): coordinator chose research",
		},
		"further": {
			change:   func(was *recordedTurn) { delete(was.decisions, 3) },
			same:     2,
			recorded: "the turn ends",
			now:      "synthesis by agent synthesis (fixed): synthesis always follows research",
		},
		"not as far": {
			change: func(was *recordedTurn) {
				was.decisions[4] = &troupev1.RoutingDecision{Step: "more", Target: "more", Reason: "because"}
			},
			same:     3,
			recorded: "more by agent more (unspecified): because",
			now:      "the turn ends",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, was := researchTurn(t)
			test.change(was)
			same, differs := r.replayDecisions(was, userMessages())
			require.Equal(t, test.same, same)
			require.Equal(t, troupev1.DifferenceKind_DIFFERENCE_KIND_OTHER_ROUTE, differs.GetKind())
			require.Equal(t, test.recorded, differs.GetRecorded())
			require.Equal(t, test.now, differs.GetNow())
		})
	}
}

// A cancelled turn has no decision after its last step, so none can differ.
func TestReplayer_RepeatsDecisionsUpToACancellation(t *testing.T) {
	r, was := researchTurn(t)
	was.record.Result.Outcome = troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED
	delete(was.results, 3)
	delete(was.decisions, 3)
	same, differs := r.replayDecisions(was, userMessages())
	require.Nil(t, differs)
	require.EqualValues(t, 2, same)
}

// storeTurn stores a turn whose third step was given the named messages and results.
func storeTurn(t *testing.T, store memory.Store, given *troupev1.ExecuteStepRequest) {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, TurnID: "t1", TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f", Message: conversation.User("What may an agent write?"),
		LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	encoded, err := proto.Marshal(given)
	require.NoError(t, err)
	_, err = store.CommitStep(t.Context(), memory.Commit{
		Ref: ref, TurnID: "t1", Epoch: begun.Turn.Epoch, Base: 1, Result: execution.Result{Step: 3, Agent: "synthesis"}, Outcome: session.OutcomeCompleted,
		Messages: []conversation.Message{conversation.Assistant("research", "Found it."), conversation.Assistant("synthesis", "That is it.")},
		Journal:  []execution.Entry{{Phase: execution.Intent, StepInput: encoded}},
	})
	require.NoError(t, err)
}

func TestReplayer_RebuildsTheInputOfAStep(t *testing.T) {
	r, was := researchTurn(t)
	store := r.Memory.(memory.Store)
	storeTurn(t, store, &troupev1.ExecuteStepRequest{
		TurnId: "t1", Turn: 1, Step: 3, Agent: "synthesis", Profile: "brief",
		History: []*troupev1.Message{{Sequence: 1, Role: troupev1.Role_ROLE_USER, Untrusted: "tool page"}, {
			Sequence: 2, Role: troupev1.Role_ROLE_ASSISTANT,
			Author: "research",
		}},
		Prior: []*troupev1.StepResult{{Step: 1}, {Step: 2}},
	})
	given, why, err := r.loadInput(t.Context(), was, 3)
	require.NoError(t, err)
	require.Empty(t, why)
	require.Equal(t, "tool page", given.step.GetHistory()[0].GetUntrusted(), "what the window stood behind")
	require.Equal(t, "What may an agent write?", wire.MessageFromProto(given.step.GetHistory()[0]).Text)
	require.Equal(t, "Found it.", wire.MessageFromProto(given.step.GetHistory()[1]).Text)
	require.Len(t, given.initialMessages, 1, "what a step of the turn said came later")
	require.Equal(t, "brief", given.step.GetProfile())
	require.Empty(t, cmp.Diff([]*troupev1.StepResult{was.results[1], was.results[2]}, given.step.GetPrior(), protocmp.Transform()))

	_, err = store.CompactSession(t.Context(), memory.Compact{Ref: ref, Keep: 1})
	require.NoError(t, err)
	_, why, err = r.loadInput(t.Context(), was, 3)
	require.NoError(t, err)
	require.Contains(t, why, "no longer kept")

	_, err = store.DeleteSession(t.Context(), ref)
	require.NoError(t, err)
	_, why, err = r.loadInput(t.Context(), was, 3)
	require.NoError(t, err)
	require.Equal(t, "its session was deleted, and what was recorded with it", why)
}

// A step without a message has the sequence of the message before it. That message may have the same author.
func TestReplayer_IgnoresStepsWithoutMessages(t *testing.T) {
	was := &recordedTurn{record: &troupev1.Trace{Turn: 1}, results: map[int]*troupev1.StepResult{
		1: {Step: 1, Agent: "planner", Text: "Let us look.", Sequence: 2},
	}}
	for silent := 2; silent < 12; silent++ { // many steps, because the iteration order of a map is random
		was.results[silent] = &troupev1.StepResult{Step: int32(silent), Agent: "planner", Text: "what a silent task found", Sequence: 2}
	}
	said := was.messageOfStep(&troupev1.Message{Sequence: 2, Author: "planner"})
	require.Equal(t, "Let us look.", wire.MessageFromProto(said).Text)
}

func TestReplayer_NamesTheMissingMessage(t *testing.T) {
	r, was := researchTurn(t)
	storeTurn(t, r.Memory.(memory.Store), &troupev1.ExecuteStepRequest{History: []*troupev1.Message{{Sequence: 99, Role: troupev1.Role_ROLE_USER}}})
	_, why, err := r.loadInput(t.Context(), was, 3)
	require.NoError(t, err)
	require.Equal(t, "message 99 of its history is not in the session any more, which was compacted or cleared since", why)
}

func TestReplayer_ReportsWhyARecordingIsMissing(t *testing.T) {
	r, was := researchTurn(t)
	storeTurn(t, r.Memory.(memory.Store), &troupev1.ExecuteStepRequest{})
	_, why, err := r.loadInput(t.Context(), was, 2)
	require.NoError(t, err)
	require.Contains(t, why, "--keep-journals")
	was.results[2].Pending = []*troupev1.PendingCall{{Id: "1-2-1"}}
	_, why, err = r.loadInput(t.Context(), was, 2)
	require.NoError(t, err)
	require.Contains(t, why, "replay the trace of that")
	was.results[2] = &troupev1.StepResult{Step: 2, Agent: "research", Failure: &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_RESOURCE_API}}
	_, why, err = r.loadInput(t.Context(), was, 2)
	require.NoError(t, err)
	require.Contains(t, why, "the turn that resumed this one")
}
