package turn

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// runAndScrape runs turns, and returns the metrics and the log of their runner.
func runAndScrape(t *testing.T, r *rig) (*Runner, func() string, *observer.ObservedLogs) {
	t.Helper()
	tel, err := telemetry.New(t.Context(), "orchestrator", telemetry.Config{LogLevel: "error"})
	require.NoError(t, err)
	t.Cleanup(tel.Close)
	core, logs := observer.New(zap.DebugLevel)
	tel.Log = zap.New(core)
	config := r.newRunner(t, "model").cfg
	config.Owner, config.Telemetry = "one", tel
	runner, err := New(config)
	require.NoError(t, err)
	t.Cleanup(func() { runner.Close(t.Context()) })
	return runner, func() string {
		answer := httptest.NewRecorder()
		tel.MetricsHandler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		return answer.Body.String()
	}, logs
}

// The metrics count a turn whose first step fails, whose second step is lost once, and which calls two tools.
//
// Req: OC-21, OC-31
func TestRunner_CountsTheSignalsOfItsTurns(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	lost := false // steps run in sequence, so no lock is needed
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.AgentLogic, "agent", "no idea"))})
	})
	rig.setScript("research", func(s *scriptedStep) error {
		if !lost {
			lost = true
			return s.cutConnections()
		}
		for i, status := range []troupev1.ToolStatus{troupev1.ToolStatus_TOOL_STATUS_SUCCESS, troupev1.ToolStatus_TOOL_STATUS_ERROR} {
			id := string(rune('a' + i))
			started := &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{CallId: id, Tool: "search"}}
			ended := &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
				CallId: id, Tool: "search", Status: status,
				Duration: durationpb.New(time.Millisecond),
			}}
			if err := s.sendEvent(&troupev1.Event{Payload: started}); err != nil {
				return err
			}
			if err := s.sendEvent(&troupev1.Event{Payload: ended}); err != nil {
				return err
			}
		}
		return s.commitAnswer("At last.")
	})
	runner, scrape, logs := runAndScrape(t, rig)
	req := textRequest("s1", "r1")
	req.User = "u1"
	events := runToEnd(t, runner, req)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	runner.Close(t.Context()) // waits for the metrics that are recorded after the last event
	said := scrape()
	for _, line := range []string{
		`troupe_turns_total\{.*outcome="completed".*\} 1`,
		`troupe_turn_duration_seconds_bucket\{.*le="0.25".*\} \d`,
		`troupe_turn_duration_seconds_count\{.*\} 1`,
		`troupe_steps_total\{.*outcome="successful".*\} 2`,
		`troupe_steps_total\{.*outcome="failed".*\} 1`,
		`troupe_steps_retries_total\{.*\} 1`,
		`troupe_routing_decisions_total\{.*strategy="default",type="fallback"\} 1`,
		`troupe_routing_decisions_total\{.*strategy="round_robin",type="worker_selection"\} [34]`, // the first of them may be lost before it is published
		`troupe_step_duration_seconds_sum\{.*outcome="successful".*\} [0-9.e-]+`,
		`troupe_step_duration_seconds_count\{.*outcome="successful".*\} 2`,
		`troupe_tool_calls_total\{.*status="success"\} 1`,
		`troupe_tool_calls_total\{.*status="error"\} 1`,
		`troupe_turn_steps_sum\{.*\} 3`,
		`troupe_turn_steps_count\{.*\} 1`,
		`troupe_turn_budget_sum\{.*of="steps".*\} 0.15`,
		`troupe_turn_budget_count\{.*of="time".*\} 1`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", said)
	}

	decisions := logs.FilterMessage("an agent was selected").All()
	require.Len(t, decisions, 3, "every decision is logged with its reason")
	for _, d := range decisions {
		fields := d.ContextMap()
		require.Equal(t, events[0].GetTraceId(), fields["trace_id"])
		require.Equal(t, "u1", fields["user_id"])
		require.Equal(t, "default", fields["profile"])
		require.NotEmpty(t, fields["data"].(map[string]any)["reason"])
	}
	require.Equal(t, 1, logs.FilterMessage("a tool call failed").Len())
	require.Equal(t, 1, logs.FilterMessage("a turn has ended").Len())
}

// The metrics and the log show how long a pending call waited, who was asked, and who answered.
// Req: OC-30, OC-31
func TestRunner_MeasuresTheWaitForAnApproval(t *testing.T) {
	rig := newRig(t)
	runner, scrape, logs := runAndScrape(t, rig)
	rig.makeResearchWait(approvalCall())
	require.Equal(t, inputRequired, turnResult(runToEnd(t, runner, textRequest("s1", "r1"))).GetOutcome())
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, answerRequest("r2", approvalAnswer("1-2-2")))).GetOutcome())
	require.Regexp(t, `(?m)^troupe_calls_wait_seconds_count\{.*verdict="approve"\} 1$`, scrape())
	for _, name := range []string{"approval_requested", "approval_received"} {
		require.Equal(t, 1, logs.FilterField(zap.String("event", name)).Len(), name)
	}
}
