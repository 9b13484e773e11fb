package turn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/progress"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// eitherAgentStep is a workflow step that chooses one of two agents.
const eitherAgentStep = `
    a: {routes: [b, c], choose: {needs: [docs]}}
    b: {agent: clarification, next: d}
    c: {agent: research, next: d}
    d: {agent: synthesis, end: true}
`

// addInstanceWith adds an instance of the agent with the given state, tools and capabilities.
func (r *rig) addInstanceWith(agent string, state lifecycle.State, tools []registry.Tool, capabilities ...string) {
	r.cache.Apply(registry.Update{Put: &registry.Instance{
		ID: agent + "-1", Agent: agent, Address: r.address, State: state, Capacity: 16, Capabilities: capabilities, Tools: tools,
	}})
}

func newChoiceRig(t *testing.T) *rig {
	t.Helper()
	rig := newRig(t)
	rig.declareSteps(t, eitherAgentStep)
	rig.addInstanceWith("research", lifecycle.Ready, nil, "docs", "maps")
	rig.addInstanceWith("clarification", lifecycle.Ready, nil, "docs")
	return rig
}

// strategyDecisions returns the decisions by strategy about agents.
func strategyDecisions(events []*troupev1.Event) (all []*troupev1.RoutingDecision) {
	for _, d := range collectPayloads(events, (*troupev1.Event).GetRoutingDecision) {
		if d.GetChoice() > 0 {
			all = append(all, d)
		}
	}
	return all
}

// A step without a named agent chooses by capability, and the choice is stored before it takes effect.
func TestTurn_ChoosesAmongAgentsByStrategy(t *testing.T) {
	rig := newChoiceRig(t)
	runner := rig.newRunner(t, "one")
	var stored []*troupev1.Event
	rig.setScript("research", func(s *scriptedStep) error {
		var err error
		stored, err = runner.cfg.Traces.Store().Events(s.stream.Context(), trace.Ref{Trace: s.req.GetTraceId()}, 0, 100)
		require.NoError(t, err)
		return s.commitAnswer("I am research.")
	})
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, []string{
		"initialize turn_started", "plan plan", "route routing_decision clarification",
		"execute step_started clarification", "execute text_delta clarification", "execute step_finished clarification",
		"route routing_decision synthesis",
	}, eventSummary(events)[:7], "one ROUTE for each task")
	require.Equal(t, "b has all that is needed: docs", strategyDecisions(events)[0].GetReason())

	events = runToEnd(t, runner, labelledRequest(textRequest("s2", "r2"), request.Labels{Needs: []string{"maps"}}))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	d := strategyDecisions(events)[0]
	require.Equal(t, "research", d.GetTarget())
	require.Equal(t, "c", d.GetStep())
	require.EqualValues(t, 1, d.GetNumber(), "of the step that is chosen")
	var states []string
	for _, s := range progress.StepsFromEvents(events) {
		states = append(states, fmt.Sprint(s.Number, s.Name, " ", s.Stage()))
	}
	require.Equal(t, []string{"1c completed", "2d completed", "0b cancelled"}, states)
	require.Equal(t, troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY, d.GetStrategy())
	require.Equal(t, "c has all that is needed: docs, maps", d.GetReason())
	require.Equal(t, []string{"docs", "maps"}, d.GetInput().GetConstraints())
	require.Equal(t, []string{"clarification"}, d.GetAlternatives())
	require.Equal(t, "clarification", d.GetFallback())
	require.Len(t, d.GetInput().GetCandidates(), 2)
	require.Equal(t, d.GetReason(), strategyDecisions(stored)[0].GetReason(), "before the step ran")
}

// The replica that takes over follows the stored choice, even where it would now choose another agent.
func TestTurn_TakeoverKeepsTheChosenAgent(t *testing.T) {
	rig := newChoiceRig(t)
	_, ref, _ := rig.loseOwnerDuringResearch(t, labelledRequest(textRequest("s1", "r1"), request.Labels{Needs: []string{"maps"}}))
	rig.addInstanceWith("research", lifecycle.Ready, nil)
	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Len(t, strategyDecisions(events), 1)
	require.Equal(t, []string{"research", "research", "synthesis"}, rig.askedAgents())
}

// A turn with answers keeps the choice of the pending turn. A turn that in turn continues that one keeps it too.
func TestTurn_AnswersKeepTheChosenAgent(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, `
    a: {routes: [b, c]}
    b: {agent: clarification, next: d}
    c: {agent: coordinator, next: d}
    d: {agent: research, end: true}
`)
	rig.setScript("coordinator", nil)
	rig.addInstanceWith("coordinator", lifecycle.Ready, nil, "maps")
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	events := runToEnd(t, runner, labelledRequest(textRequest("s1", "r1"), request.Labels{Needs: []string{"maps"}}))
	require.Equal(t, inputRequired, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, "coordinator", strategyDecisions(events)[0].GetTarget())
	rig.addInstanceWith("coordinator", lifecycle.Paused, nil)

	rig.makeResearchWait(approvalCall()) // the next turn waits again
	again := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))
	require.Equal(t, inputRequired, turnResult(again).GetOutcome(), "%v", turnResult(again))
	require.Empty(t, strategyDecisions(again), "its steps are of the turn before")
	last := runToEnd(t, runner, answerRequest("r3", approvalAnswer("1-2-2")))
	require.Equal(t, outcomeCompleted, turnResult(last).GetOutcome(), "%v", turnResult(last))
	require.Equal(t, []string{"coordinator", "research", "research", "research"}, rig.askedAgents())
	require.Equal(t, []string{"I am coordinator."}, priorTexts(rig.receivedSteps()[3]))
}

// The trace of the turn with answers publishes the choice that led to the pending step.
func TestTurn_PublishesTheChoiceOfThePendingStep(t *testing.T) {
	rig := newChoiceRig(t)
	runner := rig.newRunner(t, "one")
	call := approvalCall()
	call.Id = "1-1-2"
	rig.makeResearchWait(call)
	runToEnd(t, runner, labelledRequest(textRequest("s1", "r1"), request.Labels{Needs: []string{"maps"}}))
	rig.addInstanceWith("research", lifecycle.Ready, nil)
	again := runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-1-2")))
	require.Equal(t, outcomeCompleted, turnResult(again).GetOutcome(), "%v", turnResult(again))
	require.Equal(t, "research", strategyDecisions(again)[0].GetTarget())
	require.Equal(t, []string{"research", "research", "synthesis"}, rig.askedAgents())
}

// When no agent can be chosen, the turn fails in stage route. The failed decision is published too (OC-6).
func TestTurn_FailsWhenNoAgentCanBeChosen(t *testing.T) {
	rig := newChoiceRig(t)
	rig.addInstanceWith("research", lifecycle.Paused, nil, "docs")
	rig.addInstanceWith("clarification", lifecycle.Ready, nil)
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	why := grpcfailure.FromProto(turnResult(events).GetFailure())
	require.Equal(t, failure.NoWorker, why.Mode)
	require.Equal(t, "route", why.Facts[failure.FactStage])
	require.False(t, why.Recoverable())
	require.Equal(t, "step a: no agent can be chosen: b has nothing of what the step needs, c is paused", why.Message)
	d := collectPayloads(events, (*troupev1.Event).GetRoutingDecision)
	require.Len(t, d, 1)
	require.Equal(t, "none", d[0].GetTarget())
	require.Equal(t, "paused", d[0].GetRejected()[1].GetWhy())
	require.Empty(t, rig.askedAgents())
}

// A step may use only the tools that the routing authority selects.
func TestTurn_SelectsToolsForAStep(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, `
    a: {agent: clarification, next: b}
    b: {agent: research, next: c, tools: {needs: [web, docs]}}
    c: {agent: research, next: d, tools: {strategy: manual, names: [clock, gone]}}
    d: {agent: research, end: true, onError: {fallback: a2}, tools: {needs: [mail]}}
    a2: {agent: clarification, end: true}
`)
	tools := []registry.Tool{{Name: "clock"}, {Name: "fetch", Capabilities: []string{"web"}}, {Name: "search", Capabilities: []string{"docs", "web"}}}
	rig.addInstanceWith("research", lifecycle.Ready, tools)
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	steps := rig.receivedSteps()
	require.Len(t, steps, 4, "that without tools never ran")
	require.Nil(t, steps[0].GetTools(), "all")
	require.Equal(t, []string{"search", "fetch"}, steps[1].GetTools().GetNames(), "those that fit best first")
	require.Equal(t, []string{"clock"}, steps[2].GetTools().GetNames())

	var decided []*troupev1.Event
	for _, e := range events {
		if e.GetRoutingDecision().GetType() == troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION {
			decided = append(decided, e)
		}
	}
	require.Len(t, decided, 3)
	require.Equal(t, "research-1", decided[0].GetInstanceId())
	require.EqualValues(t, 2, decided[0].GetStep())
	d := decided[0].GetRoutingDecision()
	require.Equal(t, "search", d.GetTarget())
	require.Equal(t, []string{"fetch"}, d.GetAlternatives())
	require.Equal(t, "clock", d.GetRejected()[0].GetId())
	require.Len(t, d.GetInput().GetCandidates(), 3)
	require.Equal(t, "none", decided[2].GetRoutingDecision().GetTarget())
	var failures []string
	for _, f := range collectPayloads(events, (*troupev1.Event).GetStepFinished) {
		if why := f.GetResult().GetFailure(); why != nil {
			failures = append(failures, string(grpcfailure.FromProto(why).Mode)+": "+why.GetMessage())
		}
	}
	require.Len(t, failures, 1)
	require.True(t, strings.HasPrefix(failures[0],
		"agent_contract: step d may use none of the 3 tools of agent research: no tool can be chosen: clock has nothing"), failures[0])
}

// The orchestrator ignores a routing decision that a worker sends.
// Req: OC-13
func TestTurn_IgnoresRoutingDecisionsOfWorkers(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, `
    a: {agent: research, next: b}
    b: {agent: synthesis, end: true}
`)
	rig.setScript("research", func(s *scriptedStep) error {
		if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: &troupev1.RoutingDecision{
			Target: "clarification",
			Choice: 1,
		}}}); err != nil {
			return err
		}
		return s.commit(func(r *troupev1.StepResult) { r.Text, r.NextAgent = "Ask clarification.", "clarification" })
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	require.Len(t, collectPayloads(events, (*troupev1.Event).GetRoutingDecision), 2)
	require.Equal(t, []string{"research", "synthesis"}, rig.askedAgents())
}
