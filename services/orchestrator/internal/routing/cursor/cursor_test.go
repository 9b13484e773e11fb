package cursor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// A cursor numbers its choices. It asks the selector for them in the same order each time.
func TestCursor_NumbersItsChoices(t *testing.T) {
	set, err := workflow.Load(fstest.MapFS{"w.yaml": {Data: []byte(`apiVersion: troupe.dev/v1
kind: Workflow
metadata: {name: w}
spec:
  entry: split
  steps:
    split: {parallel: [left, right], join: end}
    left: {routes: [a, b]}
    right: {routes: [b2, end]}
    a: {agent: a, next: again}
    b: {agent: b, next: again}
    again: {routes: [c], limit: 1, otherwise: end}
    c: {agent: c, next: end}
    b2: {agent: b, next: end}
    end: {agent: e, end: true}
`)}}, "")
	require.NoError(t, err)
	flow, _ := set.Find("w")
	require.True(t, flow.Chooses())
	var chosen []string
	c, err := New(flow, questionHistory, func(number, _ int, step workflow.Step) (routing.Decision, error) {
		chosen = append(chosen, step.Name)
		require.Equal(t, len(chosen), number)
		return routing.Decision{Step: flow.Steps[step.Routes[len(step.Routes)-1]], ChoiceNumber: number}, nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"left", "right"}, chosen)
	require.Len(t, c.Round(), 1, "the right branch is chosen to end at once")
	require.Equal(t, "b", c.Round()[0].Decision.Step.Name)
	require.True(t, c.Round()[0].IsHidden())
	for range 2 {
		require.NoError(t, c.Advance([]execution.Result{{}}))
	}
	require.Equal(t, []string{"left", "right", "again"}, chosen)
	require.Equal(t, "end", c.Round()[0].Decision.Step.Name)

	absent := failure.New(failure.NoWorker, routing.Op, "no agent is available")
	_, err = New(flow, questionHistory, func(int, int, workflow.Step) (routing.Decision, error) { return routing.Decision{}, absent })
	require.ErrorIs(t, err, absent)
}

// numberedNames returns the numbers and names of the steps of a round.
func numberedNames(round []Task) (all []string) {
	for _, t := range round {
		all = append(all, fmt.Sprintf("%d %s %v", t.Number, t.Decision.Step.Name+t.Decision.Step.Task, t.PriorSteps))
	}
	return all
}

// successfulResults returns one successful result for each step of a round.
func successfulResults(round []Task) []execution.Result {
	return make([]execution.Result, len(round))
}

func forkedWorkflow() *workflow.Workflow {
	return &workflow.Workflow{Name: "w", Entry: "split", MaxSteps: 20, Steps: map[string]workflow.Step{
		"split": {Name: "split", Agent: "x", Parallel: []string{"c", "inner", "a"}, Join: "end"},
		"c":     {Name: "c", Agent: "c", Next: "end", Fork: "split"},
		"inner": {Name: "inner", Parallel: []string{"i", "j"}, Join: "k", Fork: "split"},
		"i":     {Name: "i", Agent: "i", Next: "k", Fork: "inner"},
		"j":     {Name: "j", Agent: "j", Next: "k", Fork: "inner"},
		"k":     {Name: "k", Agent: "k", Next: "end", Fork: "split"},
		"a":     {Name: "a", Agent: "a", Next: "b", Fork: "split"},
		"b":     {Name: "b", Agent: "b", Next: "end", Fork: "split"},
		"end":   {Name: "end", Agent: "e", End: true},
	}}
}

func TestCursor_RunsBranchesInRoundsAndTheJoinOnce(t *testing.T) {
	c, err := New(forkedWorkflow(), questionHistory, nil)
	require.NoError(t, err)
	for _, want := range [][]string{
		{"1 split []"},
		{"2 c [1]", "3 i [1]", "4 j [1]", "5 a [1]"},
		{"6 k [1 3 4]", "7 b [1 5]"},
		{"8 end [1 2 3 4 5 6 7]"},
		nil,
	} {
		require.Equal(t, want, numberedNames(c.Round()))
		require.NoError(t, c.Advance(successfulResults(c.Round())))
	}
}

// A step in a branch cannot end the turn while other branches run. Later steps do not receive the result of a
// failed step.
func TestCursor_BranchDoesNotEndTheTurn(t *testing.T) {
	c, err := New(forkedWorkflow(), questionHistory, nil)
	require.NoError(t, err)
	require.NoError(t, c.Advance(successfulResults(c.Round())))
	results := successfulResults(c.Round())
	results[1].InputRequired = true
	require.Equal(t, failure.AgentContract, failure.ModeOf(c.Advance(results)))
}

func TestCursor_EntersTheOtherwiseStepBeyondALimit(t *testing.T) {
	low := 0.2
	flow := &workflow.Workflow{Name: "w", Entry: "try", MaxSteps: 20, Steps: map[string]workflow.Step{
		"try": {
			Name: "try", Agent: "x", Next: "end", Then: []workflow.Edge{{When: workflow.Condition{ConfidenceBelow: 0.5}, Next: "try"}}, MaxEntries: 2,
			Otherwise: "human",
		},
		"human": {Name: "human", Agent: "y", Next: "end"},
		"end":   {Name: "end", Agent: "z", End: true},
	}}
	c, err := New(flow, questionHistory, nil)
	require.NoError(t, err)
	unsure := []execution.Result{{Confidence: &low}}
	require.NoError(t, c.Advance(unsure))
	require.Equal(t, []string{"2 try [1]"}, numberedNames(c.Round()))
	require.Equal(t, "the result of try meets condition 1: a confidence below 0.5", c.Round()[0].Decision.Reason)
	require.NoError(t, c.Advance(unsure))
	require.Equal(t, []string{"3 human [1 2]"}, numberedNames(c.Round()))
	require.Equal(t, "the turn came to try 2 times, which is its limit", c.Round()[0].Decision.Reason)
}

func TestCursor_EnforcesTheStepLimitOfTheWorkflow(t *testing.T) {
	flow := forkedWorkflow()
	flow.MaxSteps = 4
	c, err := New(flow, questionHistory, nil)
	require.NoError(t, err)
	require.Equal(t, failure.PolicyBudget, failure.ModeOf(c.Advance(successfulResults(c.Round()))))
}

// randomWorkflow builds a random workflow for property tests.
type randomWorkflow struct {
	*rand.Rand
	flow *workflow.Workflow
}

func (w *randomWorkflow) addStep(s workflow.Step) string {
	s.Name = fmt.Sprintf("s%d", len(w.flow.Steps))
	if s.Agent == "" && len(s.Parallel) == 0 {
		s.Agent = "agent-" + s.Name
	}
	w.flow.Steps[s.Name] = s
	return s.Name
}

// addStepsBefore adds random steps that lead to the given step, and returns the first of them.
func (w *randomWorkflow) addStepsBefore(next, fork string, depth int) string {
	for range 1 + w.IntN(2) {
		switch kind := w.IntN(7); {
		case kind < 2 && depth > 0:
			name := w.addStep(workflow.Step{Parallel: []string{"?"}, Fork: fork})
			step := workflow.Step{Name: name, Join: next, Fork: fork}
			for range 2 + w.IntN(2) {
				step.Parallel = append(step.Parallel, w.addStepsBefore(next, name, depth-1))
			}
			if w.IntN(2) == 0 {
				step.Agent = "agent-" + name
			}
			w.flow.Steps[name] = step
			next = name
		case kind == 2:
			instead := w.addStep(workflow.Step{Next: next, Fork: fork})
			next = w.addStep(workflow.Step{Next: next, Fork: fork, OnError: workflow.OnError{Fallback: instead}})
		case kind == 3:
			name := w.addStep(workflow.Step{Next: next, Fork: fork, MaxEntries: 2, Otherwise: next})
			step := w.flow.Steps[name]
			step.Then = []workflow.Edge{{When: workflow.Condition{ObservationsBelow: 1}, Next: name}}
			w.flow.Steps[name] = step
			next = name
		case kind == 4:
			next = w.addStep(workflow.Step{Next: next, Fork: fork, OnError: workflow.OnError{Continue: true}, Plan: &workflow.Plan{
				Agents: []string{"worker", "helper"}, MaxTasks: 3, Parallel: w.IntN(2) == 0, Continue: true,
			}})
		default:
			next = w.addStep(workflow.Step{Next: next, Fork: fork, OnError: workflow.OnError{Continue: true}})
		}
	}
	return next
}

// randomResult returns a random result that does not end the turn.
func (w *randomWorkflow) randomResult(task Task) execution.Result {
	step := task.Decision.Step
	r := execution.Result{Step: task.Number, Agent: step.Agent, Text: fmt.Sprint("said in ", task.Number)}
	if step.OnError.ContinuesTurn() && w.IntN(3) == 0 {
		return execution.Result{Step: r.Step, Agent: r.Agent, Failure: failure.New(failure.ResourceAPI, "test", "down")}
	}
	if w.IntN(2) == 0 {
		r.Observations = []string{"something"}
	}
	if step.Plan != nil {
		for i := range w.IntN(4) {
			r.Tasks = append(r.Tasks, execution.PlannedTask{Agent: step.Plan.Agents[w.IntN(2)], Text: fmt.Sprint("part ", i)})
		}
	}
	return r
}

// partialResults returns the results of some rounds, and a part of the results of the next round.
func (w *randomWorkflow) partialResults(ways [][]Task, all []execution.Result) (known []execution.Result) {
	whole := w.IntN(len(ways))
	for i, round := range ways[:whole+1] {
		for _, task := range round {
			if i < whole || w.IntN(2) == 0 {
				known = append(known, all[task.Number-1])
			}
		}
	}
	return known
}

// A cursor that resumes with any part of the results returns the same steps, with the same numbers, reasons and
// prior results.
func TestCursor_DependsOnlyOnTheResultsSoFar(t *testing.T) {
	rounds, wide, tasks := 0, 0, 0
	for seed := range uint64(500) {
		g := &randomWorkflow{Rand: rand.New(rand.NewPCG(seed, 1)), flow: &workflow.Workflow{Name: "w", MaxSteps: 1000, Steps: map[string]workflow.Step{}}}
		g.flow.Entry = g.addStepsBefore(g.addStep(workflow.Step{End: true}), "", 2)
		c, err := New(g.flow, questionHistory, nil)
		require.NoError(t, err)
		var known []execution.Result
		var ways [][]Task
		for len(c.Round()) > 0 {
			ways = append(ways, c.Round())
			var results []execution.Result
			for _, task := range c.Round() {
				results = append(results, g.randomResult(task))
				tasks += len(results[len(results)-1].Tasks)
			}
			require.NoError(t, c.Advance(results), "seed %d", seed)
			known = append(known, results...)
			rounds, wide = rounds+1, max(wide, len(results))
			require.Equal(t, len(known), results[len(results)-1].Step, "no number is left out")
		}
		require.True(t, ways[len(ways)-1][0].Decision.Step.End, "seed %d", seed)
		replay(t, g, ways, known, g.partialResults(ways, known), seed)

		// Failures are not stored. A step without a result has failed if the turn has later steps.
		var stored []execution.Result
		for _, r := range known {
			if r.Failure == nil {
				stored = append(stored, r)
			}
		}
		replay(t, g, ways, known, stored, seed)
	}
	require.Greater(t, rounds, 1000)
	require.Greater(t, wide, 3)
	require.Greater(t, tasks, 200)
}

// replay runs the turn again with a part of the results, in random order. Steps without a result run again and get
// the same result.
func replay(t *testing.T, g *randomWorkflow, ways [][]Task, all, known []execution.Result, seed uint64) {
	t.Helper()
	known = append([]execution.Result{}, known...)
	g.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	c, err := New(g.flow, questionHistory, nil)
	require.NoError(t, err)
	for i := 0; len(c.Round()) > 0; i++ {
		require.Less(t, i, len(ways), "seed %d", seed)
		require.Equal(t, numberedNames(ways[i]), numberedNames(c.Round()), "seed %d", seed)
		var results []execution.Result
		for j, found := range PriorResults(c.Round(), known, 0) {
			if found == nil {
				found = &all[c.Round()[j].Number-1]
			}
			require.Equal(t, all[found.Step-1].Failure != nil, found.Failure != nil, "seed %d", seed)
			if found.Failure == nil {
				require.Empty(t, cmp.Diff(all[found.Step-1], *found))
			}
			results = append(results, *found)
		}
		require.NoError(t, c.Advance(results))
	}
}

// Req: OC-16
func TestDecide_LearningStrategyLetsTheAgentChoose(t *testing.T) {
	chosen, err := Decide(Input{Workflow: assistantWorkflow(t), From: "coordinator", Result: execution.Result{NextAgent: "research"}, History: questionHistory})
	require.NoError(t, err)
	require.Equal(t, troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED, chosen.Strategy, "where a step's agent chooses")
}
