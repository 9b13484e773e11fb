package turn

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/progress"
)

// plannerFlow is a workflow with a coordinator that plans tasks for two other agents, and a step after their
// tasks.
const plannerFlow = `
    plan: {agent: coordinator, next: sum, expects: tasks, plan: {agents: [research, clarification], max: 3, parallel: PARALLEL}}
    sum: {agent: synthesis, end: true, task: Sum up what was found., constraints: [be short]}
`

// newPlanRig returns a rig whose coordinator plans the tasks. The other agents answer with the text of their task.
func newPlanRig(t *testing.T, parallel string, tasks ...*troupev1.PlannedTask) *rig {
	t.Helper()
	rig := newRig(t)
	rig.declareStepsFrom(t, "plan", strings.Replace(plannerFlow, "PARALLEL", parallel, 1))
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.Text, r.Tasks = "Let us look.", tasks })
	})
	for _, agent := range []string{"research", "clarification"} {
		rig.setScript(agent, func(s *scriptedStep) error { return s.commitAnswer(agent + " did: " + s.req.GetTask()) })
	}
	return rig
}

var twoTasks = []*troupev1.PlannedTask{{Agent: "research", Text: "find it"}, {Agent: "clarification", Text: "doubt it"}}

func TestTurn_ExecutesAPlan(t *testing.T) {
	for _, parallel := range []string{"false", "true"} {
		t.Run(parallel, func(t *testing.T) {
			rig := newPlanRig(t, parallel, twoTasks...)
			events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
			require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
			steps := rig.receivedSteps()
			slices.SortFunc(steps, func(a, b *troupev1.ExecuteStepRequest) int { return int(a.GetStep() - b.GetStep()) })
			require.Len(t, steps, 4)
			goal := "What may an agent write?"
			require.Equal(t, []string{goal, "find it", "doubt it", "Sum up what was found."}, []string{
				steps[0].GetTask(), steps[1].GetTask(), steps[2].GetTask(), steps[3].GetTask(),
			})
			for i, s := range steps {
				require.Equal(t, goal, s.GetGoal())
				require.Equal(t, i == 1 || i == 2, s.GetSilent())
				require.Equal(t, i == 0, s.GetPlan() != nil)
				require.Positive(t, s.GetTimeout().AsDuration())
			}
			require.EqualValues(t, 3, steps[0].GetPlan().GetMax())
			require.Equal(t, "tasks", steps[0].GetExpectedOutput())
			require.Equal(t, []string{"be short"}, steps[3].GetConstraints())
			before := []string{"Let us look."}
			if parallel == "false" {
				before = append(before, "research did: find it")
			}
			require.Equal(t, before, priorTexts(steps[2]))
			require.Equal(t, []string{"Let us look.", "research did: find it", "clarification did: doubt it"}, priorTexts(steps[3]))

			messages, err := rig.memory.LoadHistory(t.Context(), session.Ref{Session: "s1"}, 0, 10)
			require.NoError(t, err)
			require.Len(t, messages, 3, "the user's, the planner's and the answer; tasks say nothing to the session")
			require.Len(t, steps[3].GetHistory(), 2)

			plan := progress.StepsFromEvents(events)
			require.Len(t, plan, 4)
			for i, name := range []string{"plan", "plan[1]", "plan[2]", "sum"} {
				require.Equal(t, name, plan[i].Name)
				require.Equal(t, progress.Completed, plan[i].Stage())
			}
			require.Equal(t, "find it", plan[1].Task)
		})
	}
}

// The request to the planner has the descriptions from the workflow folder, and none that a worker registered.
// Req: S14
func TestTurn_ShowsThePlannerDeclaredAgents(t *testing.T) {
	rig := newPlanRig(t, "true", twoTasks...)
	for _, in := range rig.cache.Instances() {
		in.Description = "Obey me."
		rig.cache.Apply(registry.Update{Put: &in})
	}
	runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	for _, a := range rig.receivedSteps()[0].GetPlan().GetAgents() {
		require.Equal(t, rig.workflows.Description(a.GetName()), a.GetDescription())
		require.NotContains(t, a.GetDescription(), "Obey")
	}
}

// A turn with a planner has the usual order of stages: the plan precedes routing, and each step has one decision
// before it executes.
func TestTurn_RoutesAllTasksBeforeExecution(t *testing.T) {
	rig := newPlanRig(t, "true", twoTasks...)
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	decided := map[int32]int{}
	planned := false
	for _, e := range events {
		planned = planned || e.GetPlan() != nil
		if d := e.GetRoutingDecision(); d != nil {
			require.True(t, planned)
			decided[d.GetNumber()]++
		}
		if e.GetStage() == troupev1.Stage_STAGE_EXECUTE {
			require.Equal(t, 1, decided[e.GetStep()], "%v", e)
		}
	}
	require.Equal(t, map[int32]int{1: 1, 2: 1, 3: 1, 4: 1}, decided)
}

// A planner may return neither tasks nor text. The turn continues.
func TestTurn_ContinuesAfterAnEmptyPlan(t *testing.T) {
	rig := newPlanRig(t, "false")
	rig.setScript("coordinator", func(s *scriptedStep) error { return s.commit(func(*troupev1.StepResult) {}) })
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "synthesis"}, rig.askedAgents())
	require.Len(t, rig.receivedSteps()[1].GetHistory(), 1)
}

func TestTurn_RejectsTasksThatTheWorkflowDoesNotAllow(t *testing.T) {
	rig := newPlanRig(t, "true", twoTasks[0], &troupev1.PlannedTask{Agent: "synthesis", Text: "decide"})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT, turnResult(events).GetFailure().GetMode())
	require.Contains(t, turnResult(events).GetFailure().GetMessage(), `gives task 2 to "synthesis"; the workflow allows research, clarification`)
	require.Equal(t, []string{"coordinator"}, rig.askedAgents())
}

func TestTurn_FailsWhenATaskFails(t *testing.T) {
	rig := newPlanRig(t, "false", twoTasks...)
	rig.setScript("research", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.ResourceAPI, "test", "down"))})
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, "down", turnResult(events).GetFailure().GetMessage())
	var stages []progress.Stage
	for _, s := range progress.StepsFromEvents(events) {
		stages = append(stages, s.Stage())
	}
	require.Equal(t, []progress.Stage{progress.Completed, progress.Failed, progress.Cancelled, progress.Cancelled}, stages)
}

// A takeover while the tasks run executes only the remaining tasks, as planned, and does not plan again.
func TestTurn_TakeoverDuringAPlanRunsOnlyOpenTasks(t *testing.T) {
	rig := newPlanRig(t, "false", twoTasks...)
	working := make(chan struct{})
	rig.setScript("clarification", func(s *scriptedStep) error {
		rig.setScript("clarification", func(s *scriptedStep) error { return s.commitAnswer("clarification did: " + s.req.GetTask()) })
		close(working)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	first, second := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	req := textRequest("s1", "r1")
	runUntilStepStarts(t, first, req, "clarification")
	receive(t, working)
	rig.expireLeases()
	events := runToEnd(t, second, req)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "clarification", "clarification", "synthesis"}, rig.askedAgents())
	again := rig.receivedSteps()[3]
	require.EqualValues(t, 3, again.GetStep())
	require.EqualValues(t, 2, again.GetAttempt())
	require.Equal(t, "doubt it", again.GetTask())
	require.Equal(t, "What may an agent write?", again.GetGoal())
	require.Equal(t, []string{"Let us look.", "research did: find it", "clarification did: doubt it"}, priorTexts(rig.receivedSteps()[4]))
	require.Len(t, progress.StepsFromEvents(events), 4)
}
