package workflow

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
)

func TestLoad_ReadsTasksOfSteps(t *testing.T) {
	set, err := loadWorkflow(t, `
  entry: plan
  steps:
    plan: {agent: p, next: sum, plan: {agents: [x, y]}}
    sum:
      agent: z
      end: true
      task: |
        Sum it up.
      expects: One line.
      constraints: [no jargon, short]
`)
	require.NoError(t, err)
	flow, _ := set.Find("w")
	require.Equal(t, &Plan{Agents: []string{"x", "y"}, MaxTasks: 8}, flow.Steps["plan"].Plan)
	require.Equal(t, Step{
		Name: "sum", Agent: "z", End: true, Task: "Sum it up.", Expects: "One line.", Constraints: []string{"no jargon", "short"},
	}, flow.Steps["sum"])
	require.Equal(t, []string{"p", "x", "y", "z"}, flow.Agents(), "an agent that may get a task is an agent of the workflow")
	require.Nil(t, flow.Steps["sum"].Plan)

	set, err = loadWorkflow(t,
		"  entry: plan\n  steps:\n    plan: {agent: p, next: sum, plan: {agents: [x], max: 16, parallel: true, onError: continue}}\n    sum: {agent: z, end: true}\n")
	require.NoError(t, err)
	flow, _ = set.Find("w")
	require.Equal(t, &Plan{Agents: []string{"x"}, MaxTasks: 16, Parallel: true, Continue: true}, flow.Steps["plan"].Plan)
	require.Equal(t, Step{
		Name: "plan[2]", Agent: "x", Task: "look", Next: "sum", Fork: "plan", OnError: OnError{Continue: true},
	}, flow.Steps["plan"].PlannedStep(2, execution.PlannedTask{Agent: "x", Text: "look"}))
}

// The descriptions of agents that models see come from the workflow folder.
func TestLoad_ReadsDescriptionsOfAgents(t *testing.T) {
	set, err := Load(fstest.MapFS{
		"a.yaml": {Data: []byte("apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: x}\nspec: {description: Looks things up., model: builtin/echo}\n")},
		"w.yaml": {Data: []byte(manifestHead + "  description: A flow.\n  entry: a\n  steps: {a: {agent: x, end: true}}\n")},
	}, "")
	require.NoError(t, err)
	require.Equal(t, "Looks things up.", set.Description("x"))
	require.Empty(t, set.Description("w"))
	_, err = Load(fstest.MapFS{
		"a.yaml": {Data: []byte("apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: x}\nspec: {description: [no text]}\n")},
	}, "")
	require.ErrorContains(t, err, "a.yaml:4")
}

// Every problem is reported with its file and line.
func TestLoad_RejectsInvalidPlans(t *testing.T) {
	const end = "\n    z: {agent: x, end: true}"
	for want, steps := range map[string]string{
		"w.yaml:7: step a: plan is for a step with an agent and next, which follows its tasks, and without then": "a: {agent: x, end: true, plan: {agents: [x]}}",
		"plan is for a step with an agent and next":                                                              "a: {agent: x, next: z, then: [{when: {observationsBelow: 1}, next: z}], plan: {agents: [x]}}" + end,
		"w.yaml:7: step a: plan.agents names 0 agents; want 1 to 16":                                             "a: {agent: x, next: z, plan: {max: 2}}" + end,
		"step a: plan.agents names x twice":                                                                      "a: {agent: x, next: z, plan: {agents: [x, x]}}" + end,
		"w.yaml:7: step a: plan.max: 17 is not between 1 and 16":                                                 "a: {agent: x, next: z, plan: {agents: [x], max: 17}}" + end,
		`w.yaml:7: step a: plan.onError "retry" is not known; use fail or continue`:                              "a: {agent: x, next: z, plan: {agents: [x], onError: retry}}" + end,
		"step a: is the workflow w, and cannot have plan":                                                        "a: {workflow: w, next: z, plan: {agents: [x]}}" + end,
		"step a: is the workflow w, and cannot have task":                                                        "a: {workflow: w, next: z, task: Do it.}" + end,
		"step a: constraint 2 has 1 bytes; use 1 to 1024":                                                        `a: {agent: x, end: true, constraints: [short, " "]}`,
		"step a: 17 constraints are too many; use at most 16":                                                    "a: {agent: x, end: true, constraints: [" + strings.Repeat("c, ", 17) + "]}",
		"step a: expects has 4097 bytes; at most 4096 are allowed":                                               "a: {agent: x, end: true, expects: " + strings.Repeat("x", 4097) + "}",
		"step a: task, expects and constraints are for a step with an agent":                                     "a: {parallel: [b, c], join: z, task: Do it.}\n    b: {agent: x, next: z}\n    c: {agent: x, next: z}" + end,
		`w.yaml:7: unknown field "steps.a.plan.agent"; did you mean "agents"?`:                                   "a: {agent: x, next: z, plan: {agent: [x]}}" + end,
	} {
		_, err := loadWorkflow(t, "  entry: a\n  steps:\n    "+steps+"\n")
		require.ErrorContains(t, err, want)
	}
	_, err := Load(fstest.MapFS{
		"a.yaml": {Data: []byte("apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: x}\nspec: {}\n")},
		"w.yaml": {Data: []byte(manifestHead + "  entry: a\n  steps:\n    a:\n      agent: x\n      next: z\n      plan:\n        agents:\n          - x\n          - boss\n    z: {agent: x, end: true}\n")},
	}, "")
	require.ErrorContains(t, err, `w.yaml:13: step a: plan.agents: unknown agent "boss"; declared are x`)
}
