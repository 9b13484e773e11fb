package turn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Req: OC-5
func TestRunner_CancelTraceEndsTheTurnAndItsStep(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	working, cancelled, release := rig.blockResearch()
	defer release()
	first := startRequest(t, runner, textRequest("s1", "r0"))
	receive(t, working)
	ref := trace.Ref{Trace: runner.active.FindBySession(session.Ref{Session: "s1"}).TraceID}

	require.NoError(t, runner.CancelTrace(t.Context(), ref, "changed my mind"))
	require.Equal(t, session.Ready, rig.state(t, "s1"), "it has ended when CancelTrace returns")
	events := receive(t, first)
	require.Equal(t, cancelledOutcome, turnResult(events).GetOutcome())
	require.Equal(t, "the turn was cancelled: changed my mind", turnResult(events).GetFailure().GetMessage())
	receive(t, cancelled)

	require.NoError(t, runner.CancelTrace(t.Context(), ref, "again"), "it has ended")
	record, err := runner.cfg.Traces.Store().Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, cancelledOutcome, record.GetResult().GetOutcome())
}

func TestRunner_CancelTraceReportsWhyItCannot(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	ref := trace.Ref{Trace: strings.Repeat("a", 32)}
	err := runner.CancelTrace(t.Context(), ref, "")
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)

	lost := &troupev1.Trace{TraceId: ref.Trace, SessionId: "s1", Owner: "gone", State: troupev1.TraceState_TRACE_STATE_RUNNING}
	_, _, err = runner.cfg.Traces.Store().Claim(t.Context(), trace.Claim{Record: lost})
	require.NoError(t, err)
	err = runner.CancelTrace(t.Context(), ref, "")
	require.True(t, failure.Is(err, failure.TraceOrphaned), "%v", err)
	require.ErrorContains(t, err, "no orchestrator drives the trace")
}
