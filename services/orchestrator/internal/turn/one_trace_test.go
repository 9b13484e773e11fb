package turn

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/pkg/session"
)

// A turn has the same trace in its events, its step requests, its session and its log lines. Retries after a lost
// worker or orchestrator keep it. (TestExecuteStep_PassesTheTurnContextToEveryPart covers the parts of a step. A
// turn of a remote agent and a turn with answers have traces of their own in the same run: see
// TestTurn_KeepsTheRootTraceOfItsRun.)
func TestTurn_KeepsOneTraceAcrossLosses(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 2)
	first, ref, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1")) // of which research is under way
	require.Len(t, ref.Trace, 32)
	second := rig.newRunner(t, "two")
	core, logs := observer.New(zap.DebugLevel)
	logTo(t, second, core)
	rig.setScript("research", func(s *scriptedStep) error { rig.setScript("research", nil); return s.cutConnections() })
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	for _, e := range events {
		require.Equal(t, ref.Trace, e.GetTraceId())
	}
	require.Equal(t, []string{"coordinator", "research", "research", "research", "synthesis"}, rig.askedAgents())
	for _, s := range rig.receivedSteps() {
		require.Equal(t, ref.Trace, s.GetTraceId())
	}
	kept, err := rig.memory.GetSession(t.Context(), session.Ref{Session: "s1"})
	require.NoError(t, err)
	require.Equal(t, ref.Trace, kept.LastTrace)

	second.Close(t.Context())
	require.Positive(t, logs.Len())
	for _, line := range logs.All() {
		fields := line.ContextMap()
		require.Contains(t, []any{fields["trace"], fields["trace_id"]}, ref.Trace, line.Message)
	}
	other := runToEnd(t, first, textRequest("s1", "r2"))
	require.NotEqual(t, ref.Trace, other[0].GetTraceId(), "another request is another run")
}
