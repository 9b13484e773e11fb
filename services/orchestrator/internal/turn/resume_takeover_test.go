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

// noFailTurnMemory is a memory service that cannot close a failed turn.
type noFailTurnMemory struct {
	admit.Memory
	asked func()
}

func (m *noFailTurnMemory) FailTurn(context.Context, memory.Fail) (session.Turn, error) {
	m.asked()
	return session.Turn{}, failure.New(failure.SystemDisk, "test", "no")
}

// newDyingRunner returns a runner that stops before it can close a failed turn.
func (r *rig) newDyingRunner(t *testing.T, req request.Request) {
	t.Helper()
	runner := r.newRunner(t, "one")
	failed := make(chan struct{})
	replaceRunner(t, runner, func(c *Config) {
		c.Memory = &noFailTurnMemory{runner.cfg.Memory, sync.OnceFunc(func() { close(failed) })}
	})
	ctx, leave := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for _, err := range runner.Orchestrate(ctx, req) {
			if err != nil {
				return // the orchestrator was lost
			}
		}
	})
	receive(t, failed)
	runner.Close(t.Context())
	leave()
	watching.Wait()
	r.expireLeases()
}

// A branch failed the turn, and the orchestrator died before it could close the turn. The orchestrator that takes
// over publishes the decisions of the round again. The failure must not count as handled because of that.
func TestTurn_ResumesABranchThatFailedBeforeATakeover(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, `
    a: {agent: coordinator, next: f}
    f: {parallel: [b, c], join: d}
    b: {agent: clarification, next: d}
    c: {agent: research, next: d}
    d: {agent: synthesis, end: true}
`)
	rig.setScript("coordinator", nil)
	started := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		close(started)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	rig.setScript("clarification", func(s *scriptedStep) error { <-started; return failingStep(failure.ResourceAPI)(s) })
	rig.newDyingRunner(t, textRequest("s1", "r1"))

	rig.setScript("research", nil)
	second := rig.newRunner(t, "two")
	broken := runToEnd(t, second, textRequest("s1", "r1"))
	require.EqualValues(t, 2, turnResult(broken).GetPartial().GetFailurePoint())
	rig.setScript("clarification", nil)
	on := runToEnd(t, second, resumeRequest(broken, "r2"))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
}

// After a failed choice and a takeover, the new owner makes the choice again.
func TestTurn_TakeoverRepeatsAFailedChoice(t *testing.T) {
	rig := newChoiceRig(t)
	rig.addInstanceWith("research", lifecycle.Paused, nil, "docs")
	rig.addInstanceWith("clarification", lifecycle.Paused, nil, "docs")
	rig.newDyingRunner(t, textRequest("s1", "r1"))
	rig.addInstanceWith("clarification", lifecycle.Ready, nil, "docs")
	events := runToEnd(t, rig.newRunner(t, "two"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
}

// A failed turn with answers is resumed. The resumed turn does not rerun a step whose failure an earlier turn had
// handled.
func TestTurn_ResumesAFailedTurnWithAnswers(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, `
    a: {agent: coordinator, next: b}
    b: {agent: clarification, next: c, onError: {continue: true}}
    c: {agent: research, next: d}
    d: {agent: synthesis, end: true}
`)
	rig.setScript("coordinator", nil)
	rig.setScript("clarification", failingStep(failure.AgentLogic))
	runner := rig.newRunner(t, "one")
	call := approvalCall()
	call.Id = "1-3-2"
	rig.makeResearchWait(call)
	runToEnd(t, runner, textRequest("s1", "r1"))
	rig.setScript("research", failingStep(failure.ResourceAPI))
	broken := runToEnd(t, runner, answerRequest("r2", execution.Answer{ID: "1-3-2", Verdict: execution.Approve}))
	rig.setScript("research", nil)
	rig.setScript("clarification", nil)
	before := len(rig.askedAgents())
	on := runToEnd(t, runner, resumeRequest(broken, "r3"))
	require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
	require.Equal(t, []string{"research", "synthesis"}, rig.askedAgents()[before:])
}

// A fork makes the choice about its first step again.
func TestTurn_ForkChoosesItsFirstStep(t *testing.T) {
	rig := newChoiceRig(t)
	runner := rig.newRunner(t, "one")
	old := runToEnd(t, runner, labelledRequest(textRequest("s1", "r1"), request.Labels{Needs: []string{"maps"}}))
	require.Equal(t, []string{"research", "synthesis"}, rig.askedAgents())
	rig.addInstanceWith("research", lifecycle.Paused, nil, "docs", "maps")
	rig.addInstanceWith("clarification", lifecycle.Ready, nil, "docs", "maps")
	runToEnd(t, runner, forkRequest(old, "s2", 1))
	require.Equal(t, []string{"clarification", "synthesis"}, rig.askedAgents()[2:])
}

// A resumed turn publishes the steps of the earlier turn along with its own.
func TestTurn_ResumesThePlanAndTheState(t *testing.T) {
	rig := newThreeStepRig(t)
	runner := rig.newRunner(t, "one")
	rig.setScript("synthesis", failingStep(failure.ResourceAPI))
	rig.setScript("research", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) {
			r.Text, r.Observations, r.ToolsCalled = "Found.", []string{"Used tool: web_search"}, []string{"web_search"}
		})
	})
	broken := runToEnd(t, runner, textRequest("s1", "r1"))
	rig.setScript("synthesis", nil)
	on := runToEnd(t, runner, resumeRequest(broken, "r2"))
	whole := runToEnd(t, runner, textRequest("s2", "r1"))
	want, got := turnResult(whole).GetCoordination(), turnResult(on).GetCoordination()
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
