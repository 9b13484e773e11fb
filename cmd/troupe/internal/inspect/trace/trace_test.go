package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// traceServer is an orchestrator with one trace. If the trace is running, WatchTrace sends the stored events and
// then blocks.
type traceServer struct {
	troupev1.UnimplementedOrchestratorServiceServer
	trace  *troupev1.Trace
	events []*troupev1.Event
}

func (t *traceServer) GetTrace(context.Context, *troupev1.GetTraceRequest) (*troupev1.GetTraceResponse, error) {
	return &troupev1.GetTraceResponse{Trace: t.trace}, nil
}

func (t *traceServer) WatchTrace(_ *troupev1.WatchTraceRequest, stream troupev1.OrchestratorService_WatchTraceServer) error {
	for _, e := range t.events {
		if err := stream.Send(&troupev1.WatchTraceResponse{Event: e}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// describeTrace returns the tree that `troupe describe trace` prints for the events.
func describeTrace(t *testing.T, trace *troupev1.Trace, events []*troupev1.Event, args ...string) string {
	t.Helper()
	return runOnTrace(t, trace, events, append([]string{"describe", "trace"}, args...)...)
}

// runOnTrace runs a command on a trace with the events and returns its output.
func runOnTrace(t *testing.T, trace *troupev1.Trace, events []*troupev1.Event, command ...string) string {
	t.Helper()
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for i, e := range events {
		e.Sequence, e.TraceId = uint64(i+1), clitest.TraceID
		e.Time = timestamppb.New(began.Add(time.Duration(i) * 100 * time.Millisecond))
	}
	trace.TraceId, trace.SessionId, trace.Turn, trace.LastSequence = clitest.TraceID, "s1", 3, uint64(len(events))
	trace.Started = timestamppb.Now()
	addr := clitest.Serve(t, func(s grpc.ServiceRegistrar) {
		troupev1.RegisterOrchestratorServiceServer(s, &traceServer{trace: trace, events: events})
	})
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append(command, "--addr", addr, clitest.TraceID), console.Terminal{Out: &stdout, Err: &stderr})
	require.Equal(t, process.ExitOK, code, stderr.String())
	return stdout.String()
}

func treeText(out string) string {
	_, text, _ := strings.Cut(out, "\n\n")
	return "\n" + text
}

func atAttempt(step, attempt int32, instance string, e *troupev1.Event) *troupev1.Event {
	e.Step, e.Attempt, e.Agent, e.InstanceId = step, attempt, "research", instance
	return e
}

func routingDecision(d *troupev1.RoutingDecision) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: d}}
}

func stepStarted() *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{Version: "v2"}}}
}

func modelCalled(iteration int32, in, out, cost int64) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{
		Model: "openai/gpt-5", Iteration: iteration, Duration: durationpb.New(80 * time.Millisecond),
		Usage: &troupev1.Usage{InputTokens: in, OutputTokens: out, ModelCalls: 1, CostMicroUsd: cost},
	}}}
}

// The tree of a child turn names its parent, and the tree of its caller names the child. An answer that a length
// limit cut short is marked.
func TestDescribeTrace_PrintsParentAndChild(t *testing.T) {
	cut := modelCalled(1, 1, 1, 0)
	cut.GetModelCall().Finish = troupev1.FinishReason_FINISH_REASON_LENGTH
	var out strings.Builder
	trace := &troupev1.Trace{Turn: 1, Parent: &troupev1.Parent{TraceId: "above", Step: 2, Call: 3}}
	printTree(console.Terminal{Out: &out}, trace, nil, []*troupev1.Event{
		{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{Parent: trace.GetParent()}}},
		atAttempt(1, 1, "research-1", stepStarted()), atAttempt(1, 1, "research-1", cut), atAttempt(1, 1, "research-1", toolStarted("1")),
		atAttempt(1, 1, "research-1", &troupev1.Event{Payload: &troupev1.Event_SubtaskStarted{SubtaskStarted: &troupev1.SubtaskStarted{
			Target: "aide", SessionId: "sub-1", TraceId: "below", CallId: "1",
		}}}),
	})
	text := out.String()
	require.Regexp(t, "parent +trace above  step 2  call 3", text)
	require.Contains(t, text, "model openai/gpt-5, ended by length")
	require.Contains(t, text, "aide works in session sub-1  trace below")
}

func toolStarted(id string) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{
		CallId: id, Tool: "search",
		Arguments: `{"query": "tiers"}`,
	}}}
}

func toolFinished(id string, status troupev1.ToolStatus, summary string) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
		CallId: id, Tool: "search", Status: status, Summary: summary, Duration: durationpb.New(40 * time.Millisecond),
	}}}
}

func warningEvent(reason, message string) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: reason, Message: message}}}
}

// lostAttemptTurn returns the events of a turn whose first attempt is lost during a tool call.
func lostAttemptTurn() []*troupev1.Event {
	return []*troupev1.Event{
		{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{}}},
		{Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Workflow: "assistant", Steps: []string{"ask", "write"}}}},
		routingDecision(&troupev1.RoutingDecision{
			Target: "research", Reason: "coordinator chose research", Confidence: 0.8, Alternatives: []string{"clarification"},
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED,
		}),
		atAttempt(1, 1, "", warningEvent("WAITING", "no instance of agent research takes the step yet")),
		atAttempt(1, 1, "research-1", stepStarted()),
		atAttempt(1, 1, "research-1", modelCalled(1, 1200, 80, 12300)),
		atAttempt(1, 1, "research-1", toolStarted("a")),
		atAttempt(1, 1, "research-1", toolFinished("a", troupev1.ToolStatus_TOOL_STATUS_ERROR, "no such\nindex")),
		atAttempt(1, 1, "research-1", toolStarted("b")),
		atAttempt(1, 1, "research-1", &troupev1.Event{Payload: &troupev1.Event_TextRetracted{TextRetracted: &troupev1.TextRetracted{
			Failure: &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_SYSTEM_NETWORK, Message: "the worker went away"},
		}}}),
		atAttempt(1, 2, "research-2", stepStarted()),
		atAttempt(1, 2, "research-2", toolStarted("b")),
		atAttempt(1, 2, "research-2", toolFinished("b", troupev1.ToolStatus_TOOL_STATUS_SUCCESS, "found")),
		atAttempt(1, 2, "research-2", modelCalled(2, 1300, 100, 0)),
	}
}

func TestDescribeTrace_FailedTurn(t *testing.T) {
	broken := &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_RESOURCE_API, Message: "the provider is away"}
	result := &troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Failure: broken, Duration: durationpb.New(1600 * time.Millisecond)}
	out := describeTrace(t, &troupev1.Trace{
		Result: result, Text: "What are the tiers?", Target: "assistant",
		State: troupev1.TraceState_TRACE_STATE_ENDED,
	}, append(lostAttemptTurn(),
		atAttempt(1, 2, "research-2", &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{
			Result: &troupev1.StepResult{Failure: broken}, Duration: durationpb.New(1200 * time.Millisecond),
		}}}),
		routingDecision(&troupev1.RoutingDecision{
			Target: "synthesis", Reason: "synthesis always follows research", Confidence: 1,
			Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_FIXED,
		}),
		&troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: result}},
	))
	require.Regexp(t,
		`^trace +`+clitest.TraceID+`\nsession +s1\nturn +3\nstate +failed\ntarget +assistant\nasked +What are the tiers\?\nstarted +\d+s ago\nevents +17\n\n`, out)
	require.Empty(t, cmp.Diff(`
 TIME    IN  OUT      COST
 1.6s  2500  180  $0.0123+  turn 3: failed
                            ├─ plan assistant: ask, write
 1.2s  2500  180  $0.0123+  ├─ step 1: research, error: resource, recoverable
                            │  ├─ route research, LEARNED: coordinator chose research; confidence 0.80; others: clarification
500ms  1200   80   $0.0123  │  ├─ attempt 1 on research-1, version v2
                            │  │  ├─ warning WAITING: no instance of agent research takes the step yet
280ms  1200   80   $0.0123  │  │  ├─ iteration 1
 80ms  1200   80   $0.0123  │  │  │  ├─ model openai/gpt-5
 40ms                       │  │  │  ├─ tool search {"query": "tiers"} → error: no such index
                            │  │  │  └─ tool search {"query": "tiers"} → broken off
                            │  │  └─ lost with system_network: the worker went away
400ms  1300  100         -  │  ├─ attempt 2 on research-2, version v2
100ms                       │  │  ├─ iteration of an attempt before
 40ms                       │  │  │  └─ tool search {"query": "tiers"} → success: found
 80ms  1300  100         -  │  │  └─ iteration 2
 80ms  1300  100         -  │  │     └─ model openai/gpt-5
                            │  └─ failed with resource_api: the provider is away
                            ├─ route synthesis, FIXED: synthesis always follows research
                            └─ failed with resource_api: the provider is away
`, treeText(out)))
}

// The command describes the stored part of a running trace and does not wait for the rest.
func TestDescribeTrace_RunningTurn(t *testing.T) {
	out := describeTrace(t, &troupev1.Trace{State: troupev1.TraceState_TRACE_STATE_RUNNING}, append(lostAttemptTurn()[:7],
		warningEvent("TAKEN_OVER", "the turn goes on after its orchestrator went away"),
		routingDecision(&troupev1.RoutingDecision{Target: "research", Reason: "again", Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE}),
		atAttempt(1, 2, "research-2", stepStarted()),
		atAttempt(1, 2, "research-2", modelCalled(1, 0, 0, 0)),
		atAttempt(1, 2, "research-2", toolStarted("a")),
	))
	require.Contains(t, out, "\nstate    running\n")
	require.Empty(t, cmp.Diff(`
TIME    IN  OUT      COST
1.1s  1200   80  $0.0123+  turn 3: running
                           ├─ plan assistant: ask, write
   -  1200   80  $0.0123+  ├─ step 1: research, running
                           │  ├─ route research, LEARNED: coordinator chose research; confidence 0.80; others: clarification
   -  1200   80   $0.0123  │  ├─ attempt 1 on research-1, version v2, broken off
                           │  │  ├─ warning WAITING: no instance of agent research takes the step yet
80ms  1200   80   $0.0123  │  │  └─ iteration 1
80ms  1200   80   $0.0123  │  │     ├─ model openai/gpt-5
                           │  │     └─ tool search {"query": "tiers"} → broken off
                           │  ├─ route research, RULE: again
   -     0    0         -  │  └─ attempt 2 on research-2, version v2, running
80ms     0    0         -  │     └─ iteration 1
80ms     0    0         -  │        ├─ model openai/gpt-5
                           │        └─ tool search {"query": "tiers"} → running
                           └─ warning TAKEN_OVER: the turn goes on after its orchestrator went away
`, treeText(out)))
	require.Equal(t, "trace", strings.Fields(describeTrace(t, &troupev1.Trace{}, nil))[0], "one without an event yet")
}

func TestDescribeTrace_WaitingTurn(t *testing.T) {
	result := &troupev1.TurnResult{
		Outcome: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, Text: "A call\x1b[2J waits.",
		Agent: "research", Pending: []*troupev1.PendingCall{clitest.MailCall("1-1-2")},
	}
	out := describeTrace(t, &troupev1.Trace{Result: result}, []*troupev1.Event{
		{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{Answers: []*troupev1.CallAnswer{
			{Id: "1-1-1", Verdict: troupev1.CallVerdict_CALL_VERDICT_APPROVE, By: "alice", Late: true},
			{Id: "1-1-3", Verdict: troupev1.CallVerdict_CALL_VERDICT_DENY, Text: "no\nmore"},
		}}}},
		atAttempt(1, 2, "research-1", stepStarted()),
		atAttempt(1, 2, "research-1", modelCalled(1, 1, 1, 0)),
		atAttempt(1, 2, "research-1",
			&troupev1.Event{Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: clitest.NumberCall("1-1-2")}}}),
		{Payload: &troupev1.Event_TurnResult{TurnResult: result}},
	})
	for _, want := range []string{
		"─ answer 1-1-1: approve by alice, too late: it counts as denied\n", "─ answer 1-1-3: deny: no more\n",
		"─ tool ask_number {} waits for result\n", `question of research: A call\x1b[2J waits.`,
	} {
		require.Contains(t, out, want)
	}
}

func TestDescribeTrace_JSONHasTheEvents(t *testing.T) {
	var all struct {
		Trace  struct{ TraceID, SessionID string }
		Events []struct{ Sequence string }
	}
	require.NoError(t, json.Unmarshal([]byte(describeTrace(t, &troupev1.Trace{}, lostAttemptTurn(), "--json")), &all))
	require.Equal(t, "s1", all.Trace.SessionID)
	require.Len(t, all.Events, len(lostAttemptTurn()))
	require.NoError(t, json.Unmarshal([]byte(describeTrace(t, &troupev1.Trace{}, nil, "--json")), &all))
	require.NotNil(t, all.Events)
}

func TestDescribeTrace_HasColorsOnATerminalOnly(t *testing.T) {
	var plain, colored bytes.Buffer
	printTree(console.Terminal{Out: &plain}, &troupev1.Trace{}, nil, lostAttemptTurn())
	printTree(console.Terminal{Out: &colored, Color: true}, &troupev1.Trace{}, nil, lostAttemptTurn())
	require.NotContains(t, plain.String(), "\x1b")
	require.Contains(t, colored.String(), console.Red+"warning WAITING")
	require.Equal(t, plain.String(), regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(colored.String(), ""))
}

func TestFormatDollars_FormatsSmallAndUnknownCosts(t *testing.T) {
	for want, cost := range map[string]int64{"-": 0, "$0.000001": 1, "$0.000999": 999, "$0.0010": 1000, "$0.0123": 12_345, "$1234.5679": 1_234_567_890} {
		require.Equal(t, want, formatDollars(cost, true))
	}
	require.Equal(t, "$0.0123+", formatDollars(12_345, false))
	require.Equal(t, "-", formatDollars(0, false))
}

// The description of a turn names the turns of its run. It also names the iteration, the last agent and the next
// one.
func TestDescribeTrace_PrintsRunAndCoordination(t *testing.T) {
	const child = "11111111111111111111111111111111"
	own := &troupev1.Trace{TraceId: clitest.TraceID, RootTraceId: clitest.TraceID, Target: "team", Result: &troupev1.TurnResult{
		Outcome:      troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED,
		Coordination: &troupev1.Coordination{Iteration: 3, LastAgent: "synthesis", NextAgent: "END"},
	}}
	below := &troupev1.Trace{
		TraceId: child, RootTraceId: clitest.TraceID, Target: "finder", Quarantined: true,
		Result: &troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED},
	}
	head := func(trace *troupev1.Trace, run ...*troupev1.Trace) string {
		var out bytes.Buffer
		printTree(console.Terminal{Out: &out}, trace, run, nil)
		text, _, _ := strings.Cut(out.String(), "\n\n")
		return text
	}
	require.Contains(t, head(own, below, own), "iteration  3, last synthesis, next END\n"+
		"root       "+clitest.TraceID+"\n"+
		"run        "+clitest.TraceID+"  team  completed\n"+
		"run        "+child+"  finder  failed, quarantined")
	require.Contains(t, head(below, below), "root     "+clitest.TraceID)
	require.NotContains(t, head(own, own), "root", "a run of one turn is no news")
}
