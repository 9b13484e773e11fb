package publish

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// sessionTraces is a trace store with the traces of one session, each with five events, of which four are entries.
type sessionTraces struct {
	trace.Store
	t     *testing.T
	turns int
	reads int // of events
}

func (s *sessionTraces) List(_ context.Context, tenant string, q trace.Query) (all []*troupev1.Trace, _ error) {
	require.Equal(s.t, "acme", tenant)
	require.Equal(s.t, "s1", q.Session)
	for n := s.turns; n > 0 && len(all) < q.Limit; n-- {
		all = append(all, &troupev1.Trace{TraceId: fmt.Sprint(n), Turn: int32(n), LastSequence: 5})
	}
	return all, nil
}

func (s *sessionTraces) Events(_ context.Context, ref trace.Ref, after uint64, _ int) ([]*troupev1.Event, error) {
	require.Zero(s.t, after)
	s.reads++
	var all []*troupev1.Event
	for i, e := range []*troupev1.Event{
		{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{Text: ref.Trace}}},
		{Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{}}},
		{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{}}},
		{Payload: &troupev1.Event_AgentMessage{AgentMessage: &troupev1.AgentMessage{}}},
		{Payload: &troupev1.Event_TurnResult{TurnResult: &troupev1.TurnResult{Text: "long", Agent: "echo"}}},
	} {
		e.TraceId, e.Sequence = ref.Trace, uint64(i+1)
		all = append(all, e)
	}
	return all, nil
}

// Req: CO-68
func TestEarlierEntries_AreTheLatestOfEarlierTurns(t *testing.T) {
	store := &sessionTraces{t: t, turns: 301}
	traces := trace.New(store, zap.NewNop())
	log, err := traces.Open(t.Context(), trace.Claim{Tenant: "acme", Record: &troupev1.Trace{TraceId: "301"}}, false)
	require.NoError(t, err)
	w := &Writer{turn: Turn{Request: request.Request{Ref: session.Ref{Tenant: "acme", Session: "s1"}}, Turn: session.Turn{Number: 301}}, events: log, traces: traces}

	all, err := EarlierEntries(t.Context(), w, execution.MaxEntries)
	require.NoError(t, err)
	require.Len(t, all, execution.MaxEntries)
	last := all[len(all)-1]
	require.Equal(t, "300", last.GetTraceId())
	require.Equal(t, "echo", last.GetTurnResult().GetAgent())
	require.Empty(t, last.GetTurnResult().GetText())
	require.Equal(t, "51", all[0].GetTurnStarted().GetText())

	store.reads = 0
	all, err = EarlierEntries(t.Context(), w, 6)
	require.NoError(t, err)
	require.Equal(t, 2, store.reads, "no more than it needs")
	require.Len(t, all, 6)
	require.NotNil(t, all[0].GetAgentMessage())
}
