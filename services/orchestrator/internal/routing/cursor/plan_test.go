package cursor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

func plannerFlow(p workflow.Plan) *workflow.Workflow {
	return &workflow.Workflow{Name: "w", Entry: "plan", MaxSteps: 6, Steps: map[string]workflow.Step{
		"plan": {Name: "plan", Agent: "planner", Next: "sum", Plan: &p, OnError: workflow.OnError{Continue: true}},
		"sum":  {Name: "sum", Agent: "writer", End: true},
	}}
}

var bothAgents = []string{"search", "calc"}

// plannerResult returns the result of a planner that plans the given tasks.
func plannerResult(agents ...string) []execution.Result {
	var r execution.Result
	for i, agent := range agents {
		r.Tasks = append(r.Tasks, execution.PlannedTask{Agent: agent, Text: fmt.Sprint(" do ", i)})
	}
	return []execution.Result{r}
}

func TestCursor_RunsTheTasksOfAPlanner(t *testing.T) {
	for name, c := range map[string]struct {
		plan  workflow.Plan
		tasks []string
		want  [][]string
	}{
		"one after the other": {workflow.Plan{Agents: bothAgents, MaxTasks: 8}, []string{"search", "calc", "search"}, [][]string{
			{"2 plan[1] do 0 [1]"}, {"3 plan[2] do 1 [1 2]"}, {"4 plan[3] do 2 [1 2 3]"}, {"5 sum [1 2 3 4]"},
		}},
		"at once": {workflow.Plan{Agents: bothAgents, MaxTasks: 8, Parallel: true}, []string{"search", "calc", "search"}, [][]string{
			{"2 plan[1] do 0 [1]", "3 plan[2] do 1 [1]", "4 plan[3] do 2 [1]"}, {"5 sum [1 2 3 4]"},
		}},
		"none": {workflow.Plan{Agents: bothAgents, MaxTasks: 8}, nil, [][]string{{"2 sum [1]"}}},
	} {
		t.Run(name, func(t *testing.T) {
			course, err := New(plannerFlow(c.plan), questionHistory, nil)
			require.NoError(t, err)
			require.False(t, course.Round()[0].IsHidden())
			require.NoError(t, course.Advance(plannerResult(c.tasks...)))
			for i, want := range c.want {
				require.Equal(t, want, numberedNames(course.Round()))
				require.Equal(t, i < len(c.want)-1, course.Round()[0].IsHidden(), "they say nothing to the session")
				require.NoError(t, course.Advance(successfulResults(course.Round())))
			}
			require.Empty(t, course.Round())
		})
	}
}

func TestCursor_RejectsTasksThatAreNotAllowed(t *testing.T) {
	for want, c := range map[string]struct {
		plan  workflow.Plan
		tasks []execution.Result
	}{
		`agent planner gives task 2 to "boss"; the workflow allows search, calc`: {workflow.Plan{Agents: bothAgents, MaxTasks: 8}, plannerResult("calc",
			"boss")},
		"agent planner makes 3 tasks in step plan; plan.max allows 2": {workflow.Plan{Agents: bothAgents, MaxTasks: 2}, plannerResult("calc",
			"calc", "calc")},
		"use 1 to 4096, and not only white space": {
			workflow.Plan{Agents: bothAgents, MaxTasks: 2},
			[]execution.Result{{Tasks: []execution.PlannedTask{{Agent: "calc", Text: " \n"}}}},
		},
		"agent planner gives calc a task of 4097 bytes": {
			workflow.Plan{Agents: bothAgents, MaxTasks: 2},
			[]execution.Result{{Tasks: []execution.PlannedTask{{Agent: "calc", Text: strings.Repeat("x", 4097)}}}},
		},
	} {
		course, err := New(plannerFlow(c.plan), questionHistory, nil)
		require.NoError(t, err)
		first := course.Round()[0]
		err = course.Advance(c.tasks)
		require.ErrorContains(t, err, want)
		require.Equal(t, failure.AgentContract, failure.ModeOf(err))
		require.Equal(t, failure.AgentContract, failure.ModeOf(course.TurnError(first, c.tasks[0])), "known at once")
	}
	course, err := New(forkedWorkflow(), questionHistory, nil)
	require.NoError(t, err)
	require.ErrorContains(t, course.Advance(plannerResult("a")), "makes 1 tasks in step split, which has no plan")
}

func TestCursor_FailedTaskEndsTheTurnUnlessThePlanContinues(t *testing.T) {
	down := failure.New(failure.ResourceAPI, "test", "down")
	for _, goesOn := range []bool{false, true} {
		course, err := New(plannerFlow(workflow.Plan{Agents: bothAgents, MaxTasks: 8, Continue: goesOn}), questionHistory, nil)
		require.NoError(t, err)
		require.NoError(t, course.Advance(plannerResult("calc", "search")))
		err = course.Advance([]execution.Result{{Failure: down}})
		if !goesOn {
			require.ErrorIs(t, err, down)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"3 plan[2] do 1 [1]"}, numberedNames(course.Round()))
		require.NoError(t, course.Advance(successfulResults(course.Round())))
		require.Equal(t, []string{"4 sum [1 3]"}, numberedNames(course.Round()), "no step gets the result of a failed task")
	}
}

// A task counts as a step of the turn. A task cannot end the turn.
func TestCursor_TasksCountAsSteps(t *testing.T) {
	course, err := New(plannerFlow(workflow.Plan{Agents: bothAgents, MaxTasks: 8, Parallel: true}), questionHistory, nil)
	require.NoError(t, err)
	require.Equal(t, failure.PolicyBudget, failure.ModeOf(course.Advance(plannerResult("calc", "calc", "calc", "calc", "calc", "calc"))))

	course, err = New(plannerFlow(workflow.Plan{Agents: bothAgents, MaxTasks: 8}), questionHistory, nil)
	require.NoError(t, err)
	require.NoError(t, course.Advance(plannerResult("calc")))
	require.ErrorContains(t, course.Advance([]execution.Result{{InputRequired: true}}), "agent calc would end the turn in a branch of plan")
}

// A planner that asks the user ends the turn with its question, even if it has planned tasks.
func TestCursor_PlannerMayAskTheUser(t *testing.T) {
	course, err := New(plannerFlow(workflow.Plan{Agents: bothAgents, MaxTasks: 8}), questionHistory, nil)
	require.NoError(t, err)
	results := plannerResult("calc")
	results[0].InputRequired = true
	require.NoError(t, course.Advance(results))
	require.Empty(t, course.Round())
}

// The plan of a turn is a function of its workflow, its goal and the results of its steps. The same goal and tools
// lead to the same plan.
// Req: OC-29
func TestCursor_SameGoalLeadsToTheSamePlan(t *testing.T) {
	way := func() (all [][]Task) {
		course, err := New(plannerFlow(workflow.Plan{Agents: bothAgents, MaxTasks: 8, Parallel: true}), questionHistory, nil)
		require.NoError(t, err)
		for results := plannerResult("calc", "search"); len(course.Round()) > 0; results = successfulResults(course.Round()) {
			all = append(all, course.Round())
			require.NoError(t, course.Advance(results))
		}
		return all
	}
	first := way()
	require.Len(t, first, 3)
	for range 100 {
		require.Equal(t, first, way())
	}
}
