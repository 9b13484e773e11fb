package turn

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// A step is retried as often as its policy allows, and only after a retriable failure.
func TestTurn_RetriesAStepByItsPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		retry string
		mode  failure.Mode
		tries int
	}{
		"exponential is the default": {"backoff: 1ms", failure.ResourceAPI, 4},
		"linear":                     {"policy: linear, attempts: 5, backoff: 1ms", failure.ResourceAPI, 6},
		"none":                       {"policy: none", failure.ResourceAPI, 1},
		"it will not pass":           {"policy: linear, backoff: 1ms", failure.AgentLogic, 1},
		"a refusal":                  {"policy: linear, backoff: 1ms", failure.PolicyBudget, 1},
		"a crash is terminal":        {"policy: exponential, backoff: 1ms", failure.SystemCrash, 1},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			rig.declareSteps(t, "    a: {agent: research, end: true, onError: {retry: {"+c.retry+"}}}\n")
			rig.setScript("research", failingStep(c.mode))
			result := turnResult(runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1")))
			require.Equal(t, "it stopped", result.GetFailure().GetMessage())
			require.Len(t, rig.askedAgents(), c.tries)
		})
	}
}

// Cancelling a turn does not wait for the backoff before a retry.
func TestTurn_CancelEndsTheRetryBackoff(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, "    a: {agent: research, end: true, onError: {retry: {policy: linear, backoff: 1m}}}\n")
	rig.setScript("research", failingStep(failure.ResourceAPI))
	runner := rig.newRunner(t, "one")
	began := time.Now()
	for e, err := range runner.Orchestrate(t.Context(), textRequest("s1", "r1")) {
		require.NoError(t, err)
		if e.GetTextRetracted() != nil {
			require.NoError(t, runner.CancelTrace(t.Context(), trace.Ref{Trace: e.GetTraceId()}, "changed my mind"))
		}
		if result := e.GetTurnResult(); result != nil {
			require.Equal(t, cancelledOutcome, result.GetOutcome())
		}
	}
	require.Less(t, time.Since(began), patience)
	require.Equal(t, []string{"research"}, rig.askedAgents())
	require.Equal(t, session.Ready, rig.state(t, "s1"))
}

// budgetFromPlan returns the budget in the plan that a turn published.
func budgetFromPlan(events []*troupev1.Event) *troupev1.TurnBudget {
	return collectPayloads(events, (*troupev1.Event).GetPlan)[0].GetBudget()
}

// The research assistant has a timeout of 60 seconds and 20 steps, unless its caller sets a timeout.
//
// Req: RA-25
func TestTurn_TimeoutComesFromTheWorkflow(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	replaceRunner(t, runner, func(c *Config) { c.Timeout = 3 * time.Minute })
	for i, c := range []struct {
		target string
		named  time.Duration
		want   time.Duration
	}{
		{"", 0, 60 * time.Second},
		{"research-assistant", 0, 60 * time.Second},
		{"", 2 * time.Minute, 2 * time.Minute},
		{"research", 0, 3 * time.Minute},
	} {
		req := textRequest("s1", fmt.Sprint("r", i))
		req.Target, req.Timeout = c.target, c.named
		got := budgetFromPlan(runToEnd(t, runner, req))
		require.Equal(t, c.want, got.GetTime().AsDuration())
		require.EqualValues(t, 20, got.GetSteps())
	}
}

// A turn of the assistant that takes longer than its timeout fails.
//
// Req: RA-25
func TestTurn_FailsAfterTheWorkflowTimeout(t *testing.T) {
	declared, err := fs.ReadFile(researchassistant.FS, "workflow.yaml")
	require.NoError(t, err)
	require.Contains(t, string(declared), "timeout: 60s")
	// A busy machine may need longer than a short timeout to reach the step. Then the next turn gets twice the time.
	for timeout := time.Second; ; timeout *= 2 {
		rig := newRig(t)
		rig.workflows, err = workflow.Load(fstest.MapFS{"w.yaml": {Data: []byte(strings.Replace(string(declared), "timeout: 60s", "timeout: "+timeout.String(), 1))}}, "")
		require.NoError(t, err)
		_, cancelled, release := rig.blockResearch()
		t.Cleanup(release)
		result := turnResult(runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1")))
		require.Contains(t, result.GetFailure().GetMessage(), fmt.Sprintf("the turn did not end within its %s", timeout))
		if slices.Contains(rig.askedAgents(), "research") {
			require.Equal(t, troupev1.FailureMode_FAILURE_MODE_PARTIAL_TIMEOUT, result.GetFailure().GetMode(), "the coordinator has ended")
			require.Equal(t, "agent_timeout", result.GetFailure().GetFacts()["failure_mode"])
			require.Contains(t, result.GetFailure().GetMessage(), "steps that are done: 1")
			require.True(t, result.GetPartial().GetRecoverable())
			receive(t, cancelled)
			return
		}
	}
}

// A workflow without a declared limit, such as the assistant, allows 20 steps in total, whether rules or models
// choose the steps.
// Req: RA-25
func TestTurn_LimitsStepsToTwentyByDefault(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, "    a: {agent: research, routes: [b], default: b}\n"+
		"    b: {agent: synthesis, routes: [a, c], default: a}\n    c: {agent: clarification, end: true}\n")
	result := turnResult(runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1")))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_POLICY_BUDGET, result.GetFailure().GetMode(), "%v", result)
	require.Len(t, rig.askedAgents(), 20)
}
