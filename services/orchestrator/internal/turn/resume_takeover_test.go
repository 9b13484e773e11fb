package turn

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/progress"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// unfailing is a memory service that cannot close a failed turn.
type unfailing struct {
	admit.Memory
	asked func()
}

func (m *unfailing) FailTurn(context.Context, memory.Fail) (session.Turn, error) {
	m.asked()
	return session.Turn{}, failure.New(failure.SystemDisk, "test", "no")
}

// dying is a runner that stops before it can close a turn that has failed.
func (r *rig) dying(t *testing.T, req request.Request) {
	t.Helper()
	runner := r.runner(t, "one")
	failed := make(chan struct{})
	reconfigure(t, runner, func(c *Config) { c.Memory = &unfailing{runner.cfg.Memory, sync.OnceFunc(func() { close(failed) })} })
	ctx, leave := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for _, err := range runner.Orchestrate(ctx, req) {
			if err != nil {
				return // it went away
			}
		}
	})
	receive(t, failed)
	runner.Close(t.Context())
	leave()
	watching.Wait()
	r.leasesRunOut()
}

// A branch failed the turn, and its orchestrator died before it could close the turn. A takeover publishes the
// decisions of the round again. That does not make the failure a handled one.
func TestTurn_ResumesABranchThatFailedBeforeATakeover(t *testing.T) {
	rig := newRig(t)
	rig.declares(t, `
    a: {agent: coordinator, next: f}
    f: {parallel: [b, c], join: d}
    b: {agent: clarification, next: d}
    c: {agent: research, next: d}
    d: {agent: synthesis, end: true}
`)
	rig.on("coordinator", nil)
	started := make(chan struct{})
	rig.on("research", func(s *scriptedStep) error {
		close(started)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	rig.on("clarification", func(s *scriptedStep) error { <-started; return failing(failure.ResourceAPI)(s) })
	rig.dying(t, ask("s1", "r1"))

	rig.on("research", nil)
	second := rig.runner(t, "two")
	broken := collect(t, second, ask("s1", "r1"))
	require.EqualValues(t, 2, resultOf(broken).GetPartial().GetFailurePoint())
	rig.on("clarification", nil)
	on := collect(t, second, resuming(broken, "r2"))
	require.Equal(t, completed, resultOf(on).GetOutcome(), "%v", resultOf(on))
}

// Where no agent could be chosen the next owner chooses again.
func TestTurn_TakeoverRepeatsAFailedChoice(t *testing.T) {
	rig := choiceRig(t)
	rig.can("research", lifecycle.Paused, nil, "docs")
	rig.can("clarification", lifecycle.Paused, nil, "docs")
	rig.dying(t, ask("s1", "r1"))
	rig.can("clarification", lifecycle.Ready, nil, "docs")
	events := collect(t, rig.runner(t, "two"), ask("s1", "r1"))
	require.Equal(t, completed, resultOf(events).GetOutcome(), "%v", resultOf(events))
}

// A turn with answers failed. A resume does not repeat a failure that the turn before it had handled.
func TestTurn_ResumesAFailedTurnWithAnswers(t *testing.T) {
	rig := newRig(t)
	rig.declares(t, `
    a: {agent: coordinator, next: b}
    b: {agent: clarification, next: c, onError: {continue: true}}
    c: {agent: research, next: d}
    d: {agent: synthesis, end: true}
`)
	rig.on("coordinator", nil)
	rig.on("clarification", failing(failure.AgentLogic))
	runner := rig.runner(t, "one")
	call := mail()
	call.Id = "1-3-2"
	rig.waits(call)
	collect(t, runner, ask("s1", "r1"))
	rig.on("research", failing(failure.ResourceAPI))
	broken := collect(t, runner, reply("r2", execution.Answer{ID: "1-3-2", Verdict: execution.Approve}))
	rig.on("research", nil)
	rig.on("clarification", nil)
	before := len(rig.asked())
	on := collect(t, runner, resuming(broken, "r3"))
	require.Equal(t, completed, resultOf(on).GetOutcome(), "%v", resultOf(on))
	require.Equal(t, []string{"research", "synthesis"}, rig.asked()[before:])
}

// A step that runs again is chosen again.
func TestTurn_ForkChoosesItsFirstStep(t *testing.T) {
	rig := choiceRig(t)
	runner := rig.runner(t, "one")
	old := collect(t, runner, labelled(ask("s1", "r1"), request.Labels{Needs: []string{"maps"}}))
	require.Equal(t, []string{"research", "synthesis"}, rig.asked())
	rig.can("research", lifecycle.Paused, nil, "docs", "maps")
	rig.can("clarification", lifecycle.Ready, nil, "docs", "maps")
	collect(t, runner, forking(old, "s2", 1))
	require.Equal(t, []string{"clarification", "synthesis"}, rig.asked()[2:])
}

// A resumed turn publishes the steps of the earlier turn along with its own.
func TestTurn_ResumesThePlanAndTheState(t *testing.T) {
	rig := lineRig(t)
	runner := rig.runner(t, "one")
	rig.on("synthesis", failing(failure.ResourceAPI))
	rig.on("research", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) {
			r.Text, r.Observations, r.ToolsCalled = "Found.", []string{"Used tool: web_search"}, []string{"web_search"}
		})
	})
	broken := collect(t, runner, ask("s1", "r1"))
	rig.on("synthesis", nil)
	on := collect(t, runner, resuming(broken, "r2"))
	whole := collect(t, runner, ask("s2", "r1"))
	want, got := resultOf(whole).GetCoordination(), resultOf(on).GetCoordination()
	require.EqualValues(t, 3, want.GetIteration())
	require.Equal(t, want.GetIteration(), got.GetIteration())
	require.Equal(t, want.GetToolHistory(), got.GetToolHistory())
	require.Equal(t, want.GetObservations(), got.GetObservations())
	steps := progress.StepsFromEvents(on)
	require.Len(t, steps, 3)
	for i, s := range steps {
		require.Equal(t, i+1, s.Number)
		require.Equal(t, progress.Completed, s.Stage())
	}
}
