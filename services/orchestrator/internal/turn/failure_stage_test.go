package turn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

// The failure of a turn contains the stage and the trace. Watchers see both, and so does a later request for the
// same turn.
// Req: OC-6, OC-20
func TestTurn_FailureNamesItsStageAndTrace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare     func(*rig)
		stage       string
		recoverable bool
	}{
		"a step fails": {func(r *rig) {
			r.setScript("research", func(s *scriptedStep) error {
				why := failure.New(failure.ResourceTool, "test", "no search").With("tool", "search")
				return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(why)})
			})
		}, "execute", true},
		"a run inside of it fails": {func(r *rig) {
			r.setScript("research", func(s *scriptedStep) error {
				nested := failure.WithRun("route", "ffffffffffffffffffffffffffffffff", failure.New(failure.ResourceTool, "test", "the agent below failed"))
				return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(nested.With("tool", "search"))})
			})
		}, "execute", true},
		"no agent": {func(r *rig) {
			r.cache.Apply(registry.Update{Delete: &registry.Key{Agent: "research", ID: "research-1"}})
		}, "route", false},
		"a route that is not allowed": {func(r *rig) {
			r.setScript("coordinator", func(s *scriptedStep) error {
				return s.commit(func(r *troupev1.StepResult) { r.NextAgent = "synthesis" })
			})
		}, "route", false},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			rig.routeTimeout = 50 * time.Millisecond
			c.prepare(rig)
			runner := rig.newRunner(t, "one")
			events := runToEnd(t, runner, textRequest("s1", "r1"))
			err := grpcfailure.FromProto(turnResult(events).GetFailure())
			require.Equal(t, c.stage, err.Facts[failure.FactStage], "%v", err)
			require.Equal(t, events[0].GetTraceId(), err.Facts[failure.FactTrace])
			require.Equal(t, c.recoverable, err.Recoverable())
			require.ErrorContains(t, err, err.Message+" (stage "+c.stage+", trace "+events[0].GetTraceId()+")")
			if c.recoverable {
				require.Equal(t, "search", err.Facts["tool"], "what the cause said of itself")
			}
			require.Equal(t, session.Failed, rig.state(t, "s1"))

			awaitIdle(t, runner)
			rig.redis.FlushAll() // the turn record of the session is kept for longer
			again := grpcfailure.FromProto(turnResult(runToEnd(t, runner, textRequest("s1", "r1"))).GetFailure())
			require.Equal(t, err, again)
		})
	}
}
