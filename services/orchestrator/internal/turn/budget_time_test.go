package turn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/spending"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// A turn takes 1.3 s. If its timeout is 1.5 s, four fifths of it have passed at 1.2 s, in the last step. The owner of
// that moment publishes one warning, and an owner that takes over later does not repeat it. A turn with a timeout of
// 2 s has no warning.
// Req: OC-30
func TestTurn_WarnsAtFourFifthsOfItsTime(t *testing.T) {
	synthesis := func(e *troupev1.Event) bool { return e.GetStepStarted() != nil && e.GetAgent() == "synthesis" }
	for name, c := range map[string]struct {
		timeout time.Duration
		lost    func(*troupev1.Event) bool // the event after which another owner takes the turn over
		want    []string
	}{
		"in time":                              {timeout: 2 * time.Second},
		"late":                                 {timeout: 1500 * time.Millisecond, want: []string{"timeout: 1.2s of 1.5s have passed"}},
		"a successor tells what was not told":  {1500 * time.Millisecond, synthesis, []string{"timeout: 1.2s of 1.5s have passed"}},
		"a successor tells nothing once again": {1500 * time.Millisecond, isBudgetWarning, []string{"timeout: 1.2s of 1.5s have passed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSimulatedMesh(t, defaultAdmissionConfig)
				defer b.close()
				config := b.cfg
				config.Owner, config.Traces = "two", trace.New(b.cfg.Traces.Store(), zap.NewNop())
				second, err := New(config)
				require.NoError(t, err)
				defer second.Close(t.Context())

				req := request.Request{
					Ref: session.Ref{Tenant: "s", Session: "s-1"}, RequestID: "r", Text: "What?", Target: "research-assistant",
					Timeout: c.timeout,
				}
				var ref trace.Ref
				for e, err := range b.Orchestrate(t.Context(), req) {
					require.NoError(t, err)
					ref = trace.Ref{Tenant: "s", Trace: e.GetTraceId()}
					if c.lost != nil && c.lost(e) {
						second.reconciler.TakeOver(t.Context(), ref)
						break
					}
				}
				events := watchedEvents(t, second, ref, 0)
				require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
				var told []string
				for _, e := range events {
					if isBudgetWarning(e) {
						told = append(told, e.GetWarning().GetMessage())
					}
				}
				require.Equal(t, c.want, told)
				record, err := b.cfg.Traces.Store().Get(t.Context(), ref)
				require.NoError(t, err)
				require.Equal(t, c.lost != nil, record.GetOwner() == "two")
			})
		})
	}
}

func isBudgetWarning(e *troupev1.Event) bool {
	return e.GetWarning().GetReason() == spending.ReasonNearLimit
}
