package turn

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/assignment"
)

// restartInstance restarts an instance of research.
func (r *rig) restartInstance(id string, times int) {
	r.cache.Apply(registry.Update{Put: &registry.Instance{
		ID: id, Agent: "research", Address: r.address, State: lifecycle.Ready, Capacity: 16, Incarnation: int64(times),
	}})
}

// A step that crashes every worker is tried three times in total, on both instances, although these restart at
// once. It never runs again: an operator sees its turn as quarantined, and the same request runs nothing
// (guarantee F22).
func TestTurn_QuarantinesAPoisonStep(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	lost := 0
	rig.setScript("research", func(s *scriptedStep) error {
		lost++
		rig.restartInstance("research-1", lost)
		rig.restartInstance("research-2", lost)
		return s.cutConnections()
	})
	runner, scrape, logs := runAndScrape(t, rig)
	events := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_ATTEMPTS_EXHAUSTED, turnResult(events).GetFailure().GetMode(), "%v", turnResult(events))
	instances := strings.Split(turnResult(events).GetFailure().GetFacts()["instances"], ", ")
	require.Len(t, instances, assignment.MaxAttempts)
	require.Contains(t, instances, "research-1")
	require.Contains(t, instances, "research-2")
	require.Equal(t, []string{"coordinator", "research", "research", "research"}, rig.askedAgents())
	awaitIdle(t, runner)

	again := runToEnd(t, runner, textRequest("s1", "r1"))
	require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(again), protocmp.Transform()))
	require.Len(t, rig.askedAgents(), 4, "nothing ran")

	quarantined, err := runner.cfg.Traces.Store().List(t.Context(), "", trace.Query{OnlyQuarantined: true, Limit: 10})
	require.NoError(t, err)
	require.Len(t, quarantined, 1)
	require.Equal(t, events[0].GetTraceId(), quarantined[0].GetTraceId())
	require.True(t, quarantined[0].GetQuarantined())
	require.Regexp(t, `(?m)^troupe_turns_quarantined_total\{.*\} 1$`, scrape())
	lines := logs.FilterLevelExact(zap.ErrorLevel).All()
	require.Len(t, lines, 1)
	require.Equal(t, events[0].GetTraceId(), lines[0].ContextMap()["trace"])
	require.Equal(t, strings.Join(instances, ", "), lines[0].ContextMap()["instances"])

	rig.setScript("research", nil)
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, textRequest("s1", "r2"))).GetOutcome(), "the session continues")
}

// An instance that restarts quickly gets a step that crashes it at most twice while another instance is ready. The third
// attempt goes to the other instance.
func TestTurn_RetriesAPoisonStepOnOtherInstances(t *testing.T) {
	for name, others := range map[string]int{"another is there": 1, "it is alone": 0} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			rig.cache.Apply(registry.Update{Delete: &registry.Key{Agent: "research", ID: "research-1"}})
			rig.restartInstance("research-0", 1)
			lost := 1
			rig.setScript("research", func(s *scriptedStep) error {
				lost++
				rig.restartInstance("research-0", lost)
				if lost == assignment.MaxAttempts && others > 0 {
					rig.addInstances("research", others) // adds research-2
				}
				return s.cutConnections()
			})
			events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
			want := map[int]string{0: "research-0, research-0, research-0", 1: "research-0, research-0, research-2"}[others]
			require.Equal(t, want, turnResult(events).GetFailure().GetFacts()["instances"])
		})
	}
}

// Two instances do not restart after the step crashed them. Each gets the step once, and then the turn ends.
func TestTurn_PoisonStepEndsWithTheLastInstance(t *testing.T) {
	// A busy machine may need longer than a short timeout to try the second instance. Then it gets twice the time.
	rig := newRig(t)
	rig.addInstances("research", 1)
	rig.setScript("research", (*scriptedStep).cutConnections)
	for rig.routeTimeout = time.Second; ; rig.routeTimeout *= 2 {
		asked := len(rig.askedAgents())
		events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s-"+rig.routeTimeout.String(), "r1"))
		require.Equal(t, troupev1.FailureMode_FAILURE_MODE_NO_WORKER, turnResult(events).GetFailure().GetMode())
		if len(rig.askedAgents()[asked:]) < 3 && rig.routeTimeout < patience {
			continue
		}
		require.Len(t, strings.Split(turnResult(events).GetFailure().GetFacts()["instances"], ", "), 2)
		require.Len(t, rig.askedAgents()[asked:], 3)
		return
	}
}
