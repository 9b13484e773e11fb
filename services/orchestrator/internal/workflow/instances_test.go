package workflow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

func TestLoad_ReadsHowInstancesAreChosen(t *testing.T) {
	for declared, want := range map[string]selection.Policy{
		"":                          {},
		"{strategy: round_robin}":   {Strategy: selection.RoundRobin},
		"{strategy: load_balanced}": {Strategy: selection.LoadBalanced},
		"{strategy: sticky}":        {Strategy: selection.Sticky},
		"{strategy: capability}":    {Strategy: selection.Capability},
		"{strategy: capability, needs: [gpu, maps]}": {
			Strategy: selection.Capability, Needs: []string{"gpu", "maps"},
		},
		"{strategy: weighted, weights: {v2: 10, 1.10: 0}}": {
			Strategy: selection.Weighted, Weights: map[string]int{"v2": 10, "1.10": 0},
		},
		"{strategy: priority, priorities: {v2: 10, v1: -1}}": {
			Strategy: selection.Priority, Priorities: map[string]int{"v2": 10, "v1": -1},
		},
		"{strategy: manual, instance: x-0}":                   {Strategy: selection.Manual, Instance: "x-0"},
		"{strategy: manual, instance: x-0, fallback: sticky}": {Strategy: selection.Manual, Instance: "x-0", Fallback: selection.Sticky},
	} {
		set, err := loadWorkflow(t, "  entry: a\n  steps:\n    a:\n      agent: x\n      end: true\n      instances: "+declared+"\n")
		require.NoError(t, err, declared)
		flow, _ := set.Find("w")
		require.Empty(t, cmp.Diff(want, flow.Steps["a"].Instances), declared)
	}
	require.Equal(t, selection.Policy{}, SingleAgent("x").Steps["x"].Instances)
}

func TestLoad_ReportsInvalidInstancePolicies(t *testing.T) {
	var many strings.Builder
	for i := range 17 {
		fmt.Fprintf(&many, "v%d: 1, ", i)
	}
	for declared, want := range map[string]string{
		"{strategy: weigted}":                                        `w.yaml:10: instances.strategy: unknown strategy "weigted"; did you mean "weighted"?`,
		"{strategy: learned_by_heart}":                               "there are round_robin, load_balanced, sticky, weighted, priority, manual, capability",
		"{strategy: sticky, needs: [gpu]}":                           "instances.needs: is for strategy capability; this is sticky",
		"{strategy: capability, needs: [GPU]}":                       `w.yaml:10: instances.needs: "GPU" is no capability; want 1 to 63 of a-z, 0-9, dot and hyphen`,
		"{strategy: capability, needs: [gpu, x, gpu]}":               `instances.needs: "gpu" is named twice`,
		"{stratgy: sticky}":                                          `w.yaml:10: unknown field "steps.a.instances.stratgy"; did you mean "strategy"?`,
		"sticky":                                                     `w.yaml:10: steps.a.instances: want fields, got "sticky"`,
		"{weights: {v2: 10}}":                                        "instances.weights: is for strategy weighted; this is round_robin",
		"{strategy: sticky, priorities: {v2: 10}}":                   "instances.priorities: is for strategy priority; this is sticky",
		"{strategy: sticky, instance: x-0}":                          "instances.instance: is for strategy manual; this is sticky",
		"{strategy: sticky, fallback: manual}":                       "instances.fallback: is for strategy manual; this is sticky",
		"{strategy: weighted}":                                       "instances: strategy weighted wants weights of versions, such as weights: {v2: 10}",
		"{strategy: weighted, weights: {}}":                          "instances: strategy weighted wants weights of versions",
		"{strategy: weighted, weights: {v2: ten}}":                   `w.yaml:10: steps.a.instances.weights.v2: want a whole number, got "ten"`,
		"{strategy: weighted, weights: {v2: 101}}":                   "instances.weights.v2: 101 is not between 0 and 100",
		"{strategy: weighted, weights: {v1: 60, v2: 50}}":            "instances.weights: they are percentages and add up to 110; at most 100 are there",
		"{strategy: weighted, weights: {" + many.String() + "z: 1}}": "instances.weights: names 18 versions; at most 16 may be named",
		"{strategy: priority}":                                       "instances: strategy priority wants priorities of versions",
		"{strategy: priority, priorities: {v1: 2000}}":               "instances.priorities.v1: 2000 is not between -1000 and 1000",
		"{strategy: manual}":                                         "instances: strategy manual wants the id of an instance as instance",
		"{strategy: manual, instance: x, fallback: stickie}":         `instances.fallback: unknown strategy "stickie"; did you mean "sticky"?`,
		"{strategy: manual, instance: x, fallback: manual}":          `instances.fallback: unknown strategy "manual"; there are round_robin, load_balanced, sticky`,
	} {
		_, err := loadWorkflow(t, "  entry: a\n  steps:\n    a:\n      agent: x\n      end: true\n      instances: "+declared+"\n")
		require.ErrorContains(t, err, want, declared)
	}
	_, err := loadWorkflow(t,
		"  entry: a\n  steps:\n    a:\n      agent: x\n      end: true\n      instances:\n        strategy: weighted\n        weights:\n          v2: 10\n          v3: 500\n")
	require.ErrorContains(t, err, "w.yaml:14: instances.weights.v3: 500", "where it stands")
}
