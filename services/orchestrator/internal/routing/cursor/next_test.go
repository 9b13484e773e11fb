package cursor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

func assistantWorkflow(t *testing.T) *workflow.Workflow {
	t.Helper()
	set, err := workflow.Load(researchassistant.FS, "")
	require.NoError(t, err)
	flow, ok := set.Find("research-assistant")
	require.True(t, ok)
	return flow
}

// Input contains everything that one decision of a cursor depends on.
type Input struct {
	Workflow *workflow.Workflow
	From     string                 // the step that ended (empty at the start of the turn)
	Result   execution.Result       // result of that step
	History  []conversation.Message // messages at the start of the turn; the turn's own message is last
}

// Decide returns the first decision of a cursor, or the decision that follows the step From.
func Decide(in Input) (routing.Decision, error) {
	c, err := New(in.Workflow, in.History, nil)
	if err == nil && in.From != "" {
		c.round = []Task{{Number: 1, Decision: routing.Decision{Step: in.Workflow.Steps[in.From]}}}
		err = c.Advance([]execution.Result{in.Result})
	}
	if err != nil || len(c.Round()) == 0 {
		return routing.Decision{}, err
	}
	return c.Round()[0].Decision, nil
}

var questionHistory = []conversation.Message{conversation.User("What may an agent write?")}

// Req: RA-5
func TestDecide_FollowsTheGraph(t *testing.T) {
	flow := assistantWorkflow(t)
	for _, c := range []struct {
		from   string
		result execution.Result
		want   string
	}{
		{"", execution.Result{}, "coordinator"},
		{"coordinator", execution.Result{NextAgent: "clarification"}, "clarification"},
		{"coordinator", execution.Result{NextAgent: "research"}, "research"},
		{"clarification", execution.Result{Text: "which?", InputRequired: true}, ""},
		{"research", execution.Result{Text: "found"}, "synthesis"},
		{"synthesis", execution.Result{Text: "so"}, ""},
	} {
		d, err := Decide(Input{Workflow: flow, From: c.from, Result: c.result, History: questionHistory})
		require.NoError(t, err)
		require.Equal(t, c.want, d.Step.Name, "after %s", c.from)
		require.Equal(t, c.want == "", d.EndsTurn())
		require.True(t, d.EndsTurn() || len(d.Reason) > 10, "reason %q", d.Reason)
	}
}

// Req: RA-7
func TestDecide_RejectsAnAgentThatTheWorkflowDoesNotAllow(t *testing.T) {
	_, err := Decide(Input{
		Workflow: assistantWorkflow(t), From: "coordinator", Result: execution.Result{Agent: "coordinator", NextAgent: "synthesis"},
		History: questionHistory,
	})
	require.True(t, failure.Is(err, failure.AgentContract))
	require.ErrorContains(t, err, "the workflow allows clarification, research")
}

// Req: RA-8
func TestDecide_ReplyToAClarificationGoesDirectlyToResearch(t *testing.T) {
	history := []conversation.Message{
		conversation.User("Tell me about it"), conversation.Assistant("clarification", "About what?"), conversation.User("the journal"),
	}
	d, err := Decide(Input{Workflow: assistantWorkflow(t), History: history})
	require.NoError(t, err)
	require.Equal(t, "research", d.Step.Agent)
	require.Equal(t, troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, d.Strategy)
	require.Equal(t, "the user answers clarification, so coordinator is not asked", d.Reason)
}

// Req: RA-10
func TestDecide_AsksForClarificationOnlyOnce(t *testing.T) {
	history := []conversation.Message{conversation.Assistant("clarification", "About what?"), conversation.User("it"), conversation.User("that")}
	d, err := Decide(Input{Workflow: assistantWorkflow(t), History: history})
	require.NoError(t, err)
	require.Equal(t, "research", d.Step.Agent)
	require.Equal(t, troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE, d.Strategy)
}

// Req: RA-9, RA-11
func TestDecide_DefaultsToResearchWithoutAChoiceOrAModel(t *testing.T) {
	for name, result := range map[string]execution.Result{
		"named nothing": {Agent: "coordinator"},
		"failed":        {Agent: "coordinator", Failure: failure.New(failure.ResourceAPI, "model", "down")},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Decide(Input{Workflow: assistantWorkflow(t), From: "coordinator", Result: result, History: questionHistory})
			require.NoError(t, err)
			require.Equal(t, "research", d.Step.Agent)
			require.Equal(t, troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT, d.Strategy)
		})
	}
}

func TestDecide_FailedStepEndsTheTurn(t *testing.T) {
	failed := failure.New(failure.AgentLogic, "agent", "broken")
	_, err := Decide(Input{Workflow: assistantWorkflow(t), From: "research", Result: execution.Result{Failure: failed}, History: questionHistory})
	require.ErrorIs(t, err, failed)
}

// The default route applies if a step could not choose. It does not apply after a rejection or a stop.
func TestDecide_RejectionAndStopEndTheTurn(t *testing.T) {
	rejection := failure.New(failure.PolicySecurity, "agent", "not this")
	_, err := Decide(Input{Workflow: assistantWorkflow(t), From: "coordinator", Result: execution.Result{Failure: rejection}, History: questionHistory})
	require.ErrorIs(t, err, rejection)
	next, err := Decide(Input{
		Workflow: assistantWorkflow(t), From: "research", Result: execution.Result{Text: "stopped", Stopped: true},
		History: questionHistory,
	})
	require.NoError(t, err)
	require.Equal(t, routing.Decision{}, next)
}

// Req: OC-18
func TestDecide_SameInputSameDecision(t *testing.T) {
	flow := assistantWorkflow(t)
	in := Input{Workflow: flow, From: "coordinator", Result: execution.Result{Agent: "coordinator", NextAgent: "research"}, History: questionHistory}
	first, err := Decide(in)
	require.NoError(t, err)
	for range 100 {
		again, err := Decide(in)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(first, again))
	}
}
