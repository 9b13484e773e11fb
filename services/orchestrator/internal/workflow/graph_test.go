package workflow

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestLoad_ReadsForksConditionsAndLimits(t *testing.T) {
	set, err := loadWorkflow(t, `
  entry: a
  limits: {steps: 50}
  steps:
    a: {parallel: [b, c], join: e}
    b: {agent: x, next: e, onError: {continue: true}, then: [{when: {failed: true}, next: d}]}
    d: {agent: x, next: e, onError: {retry: {attempts: 2, backoff: 5s}, fallback: f}}
    f: {agent: x, routes: [d, e], default: e}
    c: {agent: x, parallel: [g, h], join: e, limit: 2, otherwise: e}
    g: {agent: x, next: e}
    h: {agent: x, next: c2}
    c2: {agent: x, next: e, onError: {retry: {policy: linear}}}
    e: {agent: y, next: end, then: [{when: {confidenceBelow: 0.5, observationsBelow: 2}, next: a2}]}
    a2: {agent: x, next: e2, limit: 1, otherwise: end}
    e2: {agent: x, next: a2}
    end: {agent: z, end: true}
`)
	require.NoError(t, err)
	flow, _ := set.Find("w")
	require.Equal(t, 50, flow.MaxSteps)
	forks := map[string]string{}
	for name, step := range flow.Steps {
		if step.Fork != "" {
			forks[name] = step.Fork
		}
	}
	require.Equal(t, map[string]string{"b": "a", "c": "a", "d": "a", "f": "a", "g": "c", "h": "c", "c2": "c"}, forks)
	require.Equal(t, "f", flow.Steps["d"].OnError.Fallback)
	require.Equal(t, "linear", flow.Steps["c2"].OnError.Name)
	require.Zero(t, flow.Steps["e"].OnError)
	require.Equal(t, []Edge{{When: Condition{ConfidenceBelow: 0.5, ObservationsBelow: 2}, Next: "a2"}}, flow.Steps["e"].Then)
}

func TestLoad_RejectsInvalidGraphs(t *testing.T) {
	const end = "\n    z: {agent: x, end: true}"
	for want, steps := range map[string]string{
		"w.yaml:8: step a: its next steps form an endless cycle: a, b, a; give one of them a limit":   "a: {agent: x, next: z, then: [{when: {observationsBelow: 1}, next: b}]}\n    b: {agent: x, next: a}" + end,
		"w.yaml:9: step b: ends the turn inside the branch b of a; lead it to the join z":             "a: {parallel: [b, c], join: z}\n    c: {agent: x, next: z}\n    b: {agent: x, end: true}" + end,
		"w.yaml:7: step a: the branch c never reaches the join z":                                     "a: {parallel: [b, c], join: z}\n    b: {agent: x, next: z}\n    c: {agent: x, routes: [c]}" + end,
		"step c leads to b, which belongs to the branch b of a and is reached from the branch c of a": "a: {parallel: [b, c], join: z}\n    b: {agent: x, next: z}\n    c: {agent: x, routes: [b, z]}" + end,
		"which belongs to the branch b of f and is reached from outside of it too":                    "a: {agent: x, routes: [f, b]}\n    f: {parallel: [b, c], join: z}\n    b: {agent: x, next: z}\n    c: {agent: x, next: z}" + end,
		"w.yaml:7: step a: parallel names 1 branches; want 2 to 16":                                   "a: {parallel: [b], join: z}\n    b: {agent: x, next: z}" + end,
		"step a: z cannot be a branch":                                                                "a: {parallel: [b, z], join: z}\n    b: {agent: x, next: z}" + end,
		"step a: join: names no step":                                                                 "a: {parallel: [b, c]}\n    b: {agent: x, next: z}\n    c: {agent: x, next: z}" + end,
		"step a: join is for a step with parallel":                                                    "a: {agent: x, next: z, join: z}" + end,
		"step a: otherwise is for a step with a limit":                                                "a: {agent: x, next: z, otherwise: z}" + end,
		"step a: limit: 21 is not between 1 and 20":                                                   "a: {agent: x, next: z, limit: 21, otherwise: z}" + end,
		"step a: otherwise: names no step":                                                            "a: {agent: x, next: z, limit: 2}" + end,
		"then is for a step that has a result, and needs next or parallel":                            "a: {agent: x, end: true, then: [{when: {failed: true}, next: z}]}" + end,
		"then 1 has no condition":                                                                     "a: {agent: x, next: z, then: [{next: z}]}" + end,
		"say onError: {continue: true} too":                                                           "a: {agent: x, next: z, then: [{when: {failed: true}, next: z}]}" + end,
		"confidenceBelow 2 is not between 0 and 1":                                                    "a: {agent: x, next: z, then: [{when: {confidenceBelow: 2}, next: z}]}" + end,
		"onError wants continue or fallback, not both":                                                "a: {agent: x, next: z, onError: {continue: true, fallback: z}}" + end,
		"onError.continue is not possible at the end of the workflow":                                 "a: {agent: x, end: true, onError: {continue: true}}",
		"a step with routes takes its default when it fails":                                          "a: {agent: x, routes: [z], onError: {fallback: z}}" + end,
		"cannot be its own fallback":                                                                  "a: {agent: x, next: z, onError: {fallback: a}}" + end,
		"onError.retry.attempts: 11 is not between 1 and 10":                                          "a: {agent: x, next: z, onError: {retry: {attempts: 11}}}" + end,
		"onError is for a step with an agent":                                                         "a: {parallel: [b, c], join: z, onError: {continue: true}}\n    b: {agent: x, next: z}\n    c: {agent: x, next: z}" + end,
		`unknown workflow "other"; there are w`:                                                       "a: {workflow: other, next: z}" + end,
		"w.yaml:7: step a: the workflow w is inside itself: w, w":                                     "a: {workflow: w, next: z}" + end,
		"is the workflow w, and cannot have limit":                                                    "a: {workflow: w, next: z, limit: 2, otherwise: z}" + end,
		"step a/b: a name has no slash":                                                               "a/b: {agent: x, end: true}",
	} {
		_, err := loadWorkflow(t, "  entry: a\n  steps:\n    "+steps+"\n")
		require.ErrorContains(t, err, want)
	}
	_, err := loadWorkflow(t, "  entry: a\n  limits: {steps: 51}\n  steps: {a: {agent: x, end: true}}\n")
	require.ErrorContains(t, err, "w.yaml:6: limits.steps: 51 is not between 1 and 50")
	for timeout, want := range map[string]string{"500ms": "500ms", "11m": "11m0s", "-1s": "-1s"} {
		_, err = loadWorkflow(t, "  entry: a\n  timeout: "+timeout+"\n  steps: {a: {agent: x, end: true}}\n")
		require.ErrorContains(t, err, "w.yaml:6: timeout: "+want+" is not between 1s and 10m0s")
	}
}

// Numbers that are declared next to a retry policy override the numbers of that policy.
func TestLoad_ReadsRetryPolicies(t *testing.T) {
	type numbers struct {
		name    string
		retries int
		first   time.Duration
	}
	for declared, want := range map[string]numbers{
		"{}":                         {"exponential", 3, time.Second},
		"{attempts: 2, backoff: 5s}": {"exponential", 2, 5 * time.Second},
		"{attempts: 0, backoff: 0s}": {"exponential", 3, time.Second},
		"{policy: exponential}":      {"exponential", 3, time.Second},
		"{policy: linear}":           {"linear", 3, 2 * time.Second},
		"{policy: none}":             {"none", 0, 0},

		"{policy: exponential, attempts: 1, backoff: 1m}": {"exponential", 1, time.Minute},
		"{policy: linear, attempts: 10, backoff: 1ms}":    {"linear", 10, time.Millisecond},
	} {
		set, err := loadWorkflow(t, "  entry: a\n  steps:\n    a: {agent: x, end: true, onError: {retry: "+declared+"}}\n")
		require.NoError(t, err, declared)
		flow, _ := set.Find("w")
		p, err := retry.ParsePolicy(want.name)
		require.NoError(t, err)
		p.Retries, p.FirstPause = want.retries, want.first
		require.Equal(t, OnError{Policy: p}, flow.Steps["a"].OnError, declared)
	}
}

func TestLoad_RejectsInvalidRetryPolicies(t *testing.T) {
	for declared, want := range map[string]string{
		"{policy: fibonacci}":            `w.yaml:8: onError.retry.policy: there is no retry policy "fibonacci"; use exponential, linear or none`,
		"{policy: none, attempts: 2}":    "w.yaml:8: onError.retry.policy: none tries nothing again; leave out attempts and backoff, or use another",
		"{policy: none, backoff: 2s}":    "w.yaml:8: onError.retry.policy: none tries nothing again",
		"{attempts: -1}":                 "w.yaml:8: onError.retry.attempts: -1 is not between 1 and 10",
		"{policy: linear, backoff: 61s}": "w.yaml:8: onError.retry.backoff: 1m1s is not between 0s and 1m0s",
	} {
		_, err := loadWorkflow(t, "  entry: a\n  steps:\n    a: {agent: x, end: true,\n      onError: {retry: "+declared+"}}\n")
		require.ErrorContains(t, err, want)
	}
}

// A turn of the assistant is limited to 20 steps and 60 seconds.
// Req: RA-25
func TestLoad_ReadsTheLimitsOfTheAssistant(t *testing.T) {
	set, err := Load(researchassistant.FS, "")
	require.NoError(t, err)
	flow, _ := set.Find("research-assistant")
	require.Equal(t, 20, flow.MaxSteps)
	require.Equal(t, 60*time.Second, flow.Timeout)
	require.Zero(t, SingleAgent("research").Timeout, "a single agent has the timeout of the orchestrator")
}

// A nested workflow is replaced by its steps, whose names begin with the name of the replaced step.
func TestLoad_InlinesNestedWorkflows(t *testing.T) {
	doc := func(name, spec string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("apiVersion: troupe.dev/v1\nkind: Workflow\nmetadata: {name: " + name + "}\nspec:\n" + spec)}
	}
	set, err := Load(fstest.MapFS{
		"outer.yaml": doc("outer",
			"  entry: split\n  steps:\n    split: {parallel: [look, ask], join: sum}\n    look: {workflow: search, next: sum}\n    ask: {agent: y, next: sum}\n    sum: {workflow: search, end: true}\n"),
		"inner.yaml": doc("search",
			"  entry: find\n  steps:\n    find: {agent: x, next: check}\n    check: {agent: y, end: true, onError: {fallback: find2}}\n    find2: {agent: x, end: true}\n"),
	}, "outer")
	require.NoError(t, err)
	flow, _ := set.Find("outer")
	require.Equal(t, []string{"split", "look/find", "ask", "sum/find", "look/check", "sum/check", "look/find2", "sum/find2"}, flow.Reachable())
	require.Equal(t, Step{Name: "look/check", Agent: "y", Next: "sum/find", Fork: "split", OnError: OnError{Fallback: "look/find2"}}, flow.Steps["look/check"])
	require.Equal(t, []string{"look/find", "ask"}, flow.Steps["split"].Parallel)
	require.Equal(t, "sum/find", flow.Steps["split"].Join)
	require.True(t, flow.Steps["sum/check"].End)
	inner, _ := set.Find("search")
	require.Equal(t, "check", inner.Steps["find"].Next, "it is one by itself too")
}

func TestCondition_Holds(t *testing.T) {
	low, failed := 0.3, failure.New(failure.AgentLogic, "test", "no")
	for _, c := range []struct {
		when Condition
		got  execution.Result
		want bool
	}{
		{Condition{ConfidenceBelow: 0.5}, execution.Result{Confidence: &low}, true},
		{Condition{ConfidenceBelow: 0.3}, execution.Result{Confidence: &low}, false},
		{Condition{ConfidenceBelow: 0.5}, execution.Result{}, false},
		{Condition{ObservationsBelow: 1}, execution.Result{}, true},
		{Condition{ObservationsBelow: 1}, execution.Result{Observations: []string{"a"}}, false},
		{Condition{Failed: true}, execution.Result{Failure: failed}, true},
		{Condition{Failed: true}, execution.Result{}, false},
		{Condition{Failed: true, ConfidenceBelow: 0.5}, execution.Result{Failure: failed}, false},
	} {
		require.Equal(t, c.want, c.when.Holds(c.got), "%+v", c.when)
	}
}
