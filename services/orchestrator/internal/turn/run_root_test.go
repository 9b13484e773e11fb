package turn

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

const (
	rootTrace  = "11111111111111111111111111111111" // root trace of the run
	traceAbove = "22222222222222222222222222222222" // trace of a turn in the run
)

// childRequestInRun returns the request of an agent for a child turn in a run.
func childRequestInRun(req request.Request, root string) request.Request {
	req.Parent = &troupev1.Parent{TraceId: traceAbove, RootTraceId: root, TurnId: "above", Step: 1, Call: 1}
	return req
}

// requireRun checks that all events and steps have the given root trace.
func (r *rig) requireRun(t *testing.T, root string, events []*troupev1.Event, steps []*troupev1.ExecuteStepRequest) {
	t.Helper()
	require.NotEmpty(t, events)
	for _, e := range events {
		require.Equal(t, root, e.GetRootTraceId(), "%v", e)
	}
	for _, s := range steps {
		require.Equal(t, root, s.GetRootTraceId())
		require.Equal(t, events[0].GetTraceId(), s.GetTraceId())
	}
}

// All turns of a run have the same root trace in their decisions, steps, log lines and failures. These turns
// include child turns, turns with answers, and turns after a lost worker or orchestrator.
// (TestExecuteStep_PassesTheTurnContextToEveryPart covers the inside of a step, and TestAgent_AsksWithinItsRun
// remote agents.)
// Req: OC-10
func TestTurn_KeepsTheRootTraceOfItsRun(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 2)
	_, ref, _ := rig.loseOwnerDuringResearch(t, childRequestInRun(textRequest("s1", "r1"), rootTrace)) // its orchestrator is lost
	second := rig.newRunner(t, "two")
	core, logs := observer.New(zap.DebugLevel)
	logTo(t, second, core)
	rig.setScript("research", func(s *scriptedStep) error { rig.makeResearchWait(approvalCall()); return s.cutConnections() }) // and then a worker is lost
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, inputRequired, turnResult(events).GetOutcome())
	require.Equal(t, []string{"coordinator", "research", "research", "research"}, rig.askedAgents())
	rig.requireRun(t, rootTrace, events, rig.receivedSteps())
	require.NotEqual(t, rootTrace, ref.Trace)
	awaitIdle(t, second)

	before := len(rig.receivedSteps())
	answer := childRequestInRun(answerRequest("r2", approvalAnswer("1-2-2")), "33333333333333333333333333333333") // a repeated request cannot change the root
	_, next, _ := rig.loseOwnerDuringResearch(t, answer)
	third := rig.newRunner(t, "three")
	third.reconciler.TakeOver(t.Context(), next)
	answered := watchedEvents(t, third, next, 0)
	require.Equal(t, outcomeCompleted, turnResult(answered).GetOutcome())
	require.NotEqual(t, ref.Trace, next.Trace)
	rig.requireRun(t, rootTrace, answered, rig.receivedSteps()[before:])
	record, err := third.cfg.Traces.Store().Get(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, rootTrace, record.GetRootTraceId())

	second.Close(t.Context())
	require.Positive(t, logs.Len())
	for _, line := range logs.All() {
		require.Equal(t, rootTrace, line.ContextMap()["root_trace_id"], "%s", line.Message)
	}
}

// A turn without a parent begins a run. A child belongs to the run of its parent, and if the parent has no run,
// the parent's trace becomes the root. A repeated request or a takeover does not change the run.
// Req: OC-10
func TestTurn_RootTraceNeverChanges(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	rig.requireRun(t, events[0].GetTraceId(), events, rig.receivedSteps())
	require.Regexp(t, "^[0-9a-f]{32}$", events[0].GetRootTraceId())
	again := runToEnd(t, runner, childRequestInRun(textRequest("s1", "r1"), rootTrace))
	rig.requireRun(t, events[0].GetTraceId(), again, nil)
	other := runToEnd(t, runner, textRequest("s1", "r2"))
	require.NotEqual(t, events[0].GetRootTraceId(), other[0].GetRootTraceId(), "another request is another run")
	rig.requireRun(t, traceAbove, runToEnd(t, runner, childRequestInRun(textRequest("s2", "r3"), "")), nil)

	before := len(rig.receivedSteps())
	rig.loseOwnerDuringResearch(t, childRequestInRun(textRequest("s3", "r4"), rootTrace))
	rig.expireLeases()
	second := rig.newRunner(t, "two")
	taken := runToEnd(t, second, childRequestInRun(textRequest("s3", "r4"), "33333333333333333333333333333333"))
	rig.requireRun(t, rootTrace, taken, rig.receivedSteps()[before:])

	err := rpc.Validate(&troupev1.OrchestrateRequest{
		Input: &troupev1.OrchestrateRequest_Text{Text: "hello"}, Parent: &troupev1.Parent{TraceId: traceAbove, RootTraceId: "somewhere"},
	})
	require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
	require.ErrorContains(t, err, "parent.root_trace_id")
}

// A failure contains the root trace of its run, however deeply the turn is nested.
func TestTurn_FailureNamesItsRun(t *testing.T) {
	rig := newRig(t)
	rig.setScript("research", func(s *scriptedStep) error {
		why := failure.WithRun("execute", "44444444444444444444444444444444",
			failure.New(failure.ResourceTool, "test", "no search")).With(failure.FactRoot, rootTrace)
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(why)})
	})
	events := runToEnd(t, rig.newRunner(t, "one"), childRequestInRun(textRequest("s1", "r1"), rootTrace))
	facts := grpcfailure.FromProto(turnResult(events).GetFailure()).Facts
	require.Equal(t, rootTrace, facts[failure.FactRoot])
	require.Equal(t, events[0].GetTraceId(), facts[failure.FactTrace])
}

// If the caller sends an OpenTelemetry trace, the spans of the turn's steps belong to that trace.
func TestTurn_JoinsTheW3CTraceOfItsCaller(t *testing.T) {
	rig := newRig(t)
	callers := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{8}, TraceFlags: trace.FlagsSampled})
	seen := make(chan trace.SpanContext, 1)
	rig.setScript("research", func(s *scriptedStep) error {
		seen <- trace.SpanContextFromContext(s.stream.Context())
		return s.commitAnswer("so")
	})
	for _, err := range rig.newRunner(t, "one").Orchestrate(trace.ContextWithSpanContext(t.Context(), callers), childRequestInRun(textRequest("s1", "r1"),
		rootTrace)) {
		require.NoError(t, err)
	}
	require.Equal(t, callers.TraceID(), receive(t, seen).TraceID())
}
