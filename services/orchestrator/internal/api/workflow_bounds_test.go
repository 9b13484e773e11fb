package api

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

func TestGetWorkflow_TellsWhatATurnMayUse(t *testing.T) {
	flows, err := workflow.Load(fstest.MapFS{"w.yaml": {Data: []byte(`apiVersion: troupe.dev/v1
kind: Workflow
metadata: {name: w}
spec:
  entry: a
  timeout: 2m
  limits: {tokens: 500, policy: warn}
  steps:
    a: {agent: x, end: true, instances: {strategy: sticky}}
`)}}, "")
	require.NoError(t, err)
	o := &Orchestrator{Workflows: flows}
	resp, err := o.GetWorkflow(t.Context(), &troupev1.GetWorkflowRequest{Name: "w"})
	require.NoError(t, err)
	got := resp.GetWorkflow()
	require.Equal(t, 2*time.Minute, got.GetTimeout().AsDuration())
	want := budget.Default()
	want.Tokens, want.Policy = 500, budget.Warn
	require.Equal(t, want, wire.LimitsFromProto(got.GetLimits()))
	require.Equal(t, "sticky", got.GetSteps()[0].GetInstances())
}

func TestShownInstances_IsForAPerson(t *testing.T) {
	for want, p := range map[string]selection.Policy{
		"":                                   {},
		"load_balanced":                      {Strategy: selection.LoadBalanced},
		"weighted (v1 20, v2 10)":            {Strategy: selection.Weighted, Weights: map[string]int{"v2": 10, "v1": 20}},
		"priority (v2 7)":                    {Strategy: selection.Priority, Priorities: map[string]int{"v2": 7}},
		"manual (x-1, else sticky)":          {Strategy: selection.Manual, Instance: "x-1", Fallback: selection.Sticky},
		"capability (needs legal documents)": {Strategy: selection.Capability, Needs: []string{"legal", "documents"}},
	} {
		require.Equal(t, want, shownInstances(p))
	}
	require.Empty(t, shownInstances(selection.Policy{Strategy: selection.RoundRobin}))
}
