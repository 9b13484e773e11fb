package api

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

func TestGetWorkflow_ReturnsTheBudget(t *testing.T) {
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
