package trace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// The trace of a planner shows its tasks and their progress.
// Req: OC-28
func TestDescribeTrace_PrintsPlansAndStatuses(t *testing.T) {
	end := func(r *troupev1.StepResult) *troupev1.Event {
		return &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: r}}}
	}
	events := []*troupev1.Event{
		{Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Workflow: "w", Steps: []string{"plan", "sum"}}}},
		atAttempt(1, 1, "a", stepStarted()), atAttempt(1, 1, "a", end(&troupev1.StepResult{Tasks: []*troupev1.PlannedTask{{
			Agent: "calc",
			Text:  "add\nit up",
		}}})),
		atAttempt(2, 1, "b", stepStarted()), atAttempt(2, 1, "b",
			end(&troupev1.StepResult{Failure: &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_USER_CANCELLED}})),
		atAttempt(3, 1, "b", stepStarted()), atAttempt(3, 1, "b", end(&troupev1.StepResult{MaxIterationsReached: true})),
		atAttempt(4, 1, "b", stepStarted()), atAttempt(4, 1, "b", end(&troupev1.StepResult{InputRequired: true})),
		atAttempt(5, 1, "b", stepStarted()), atAttempt(5, 1, "b",
			end(&troupev1.StepResult{Failure: &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_POLICY_SECURITY}})),
	}
	stamp := func(s int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(s, 0)) }
	trace := &troupev1.Trace{Plan: []*troupev1.PlanStep{
		{Number: 1, Step: "plan", Agent: "planner", State: troupev1.PlanState_PLAN_STATE_COMPLETED, Executing: stamp(1), Ended: stamp(3)},
		{Number: 2, Step: "plan[1]", Agent: "calc", Task: "add it up", State: troupev1.PlanState_PLAN_STATE_EXECUTING, Executing: stamp(3)},
		{Step: "sum", Agent: "writer", State: troupev1.PlanState_PLAN_STATE_CREATED},
	}}
	text := describeTrace(t, trace, events)
	for _, want := range []string{
		"─ plan w: plan, sum\n", "  2s  ", "─ plan, agent planner: completed\n", "─ plan[1], agent calc: executing; add it up\n", "─ sum, agent writer: created\n",
		"─ planned task 1 for calc: add it up\n", "─ step 1: research, success\n", "─ step 2: research, cancelled\n",
		"─ step 3: research, partial\n", "─ step 4: research, pending\n", "─ step 5: research, error: permission\n",
	} {
		require.Contains(t, text, want)
	}
	require.Contains(t, runOnTrace(t, trace, events, "explain"), "planned   research, step 1, attempt 1\n            task 1 for calc: add it up\n")
}
