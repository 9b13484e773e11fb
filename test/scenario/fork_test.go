package scenario

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/gate"
)

// These tests lose parts of the mesh while steps run concurrently.

func TestFork_InProcess(t *testing.T) {
	t.Parallel()
	runForks(t, rig.StartInProcess(t, rig.Config{TestWorkflows: true, DrainTimeout: time.Second})) // in process, Kill only stops a service gracefully
}

func TestFork_Binaries(t *testing.T) {
	t.Parallel()
	runForks(t, rig.StartBinaries(t, rig.Config{TestWorkflows: true}))
}

const waitingWorkers = 2

func runForks(t *testing.T, m *rig.Mesh) {
	s := &gatedMesh{m, gate.New(t)}
	for n := range waitingWorkers {
		s.HostWorker(rig.SlowWorker(s.gate, n+1))
	}
	for name, lose := range map[string]func(*testing.T, string){
		"BranchLosesItsWorker": func(t *testing.T, instance string) {
			s.Kill(rig.Part(instance))
			t.Cleanup(func() { s.Start(rig.Part(instance)) })
		},
		"RoundLosesItsOrchestrator": func(_ *testing.T, _ string) {
			s.Kill(rig.Orchestrator)
			s.Start(rig.Orchestrator)
		},
	} {
		s.AwaitReady()
		s.Await("everybody who waits is ready", func() bool { return len(idleInstances(t, s.Mesh, "slow")) == waitingWorkers })
		if !t.Run(name, func(t *testing.T) { s.checkSiblingsRunOnce(t, lose) }) {
			return
		}
	}
	s.AwaitReady()
	s.Await("everybody who waits is ready", func() bool { return len(idleInstances(t, s.Mesh, "slow")) == waitingWorkers })
	t.Run("FailedTurnIsResumed", s.checkFailedTurnIsResumed)
}

// checkSiblingsRunOnce loses a part of the mesh while one of three branches waits and the others have ended. The
// finished branches do not run again, and the join runs once, after all branches.
func (g *gatedMesh) checkSiblingsRunOnce(t *testing.T, lose func(t *testing.T, instance string)) {
	key := uuid.NewString()
	req := textRequest("hold " + key)
	req.Target = "trio"
	wait := g.startTurn(t, req)
	instance := g.gate.AwaitCall(t, key)
	g.awaitEnds(t, 2)
	lose(t, instance)
	g.gate.AwaitCall(t, key)
	g.gate.Open(key)
	events := wait()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	finished := map[int32]string{}
	started := map[int32]int{}
	for _, e := range durableEvents(events) {
		if e.GetStepFinished() != nil {
			require.Empty(t, finished[e.GetStep()], "a step ends once")
			finished[e.GetStep()] = e.GetAgent()
		}
		if e.GetStepStarted() != nil {
			started[e.GetStep()]++
		}
	}
	require.Equal(t, map[int32]string{1: "research", 2: "slow", 3: "research", 4: "synthesis"}, finished)
	require.Equal(t, map[int32]int{1: 1, 2: 2, 3: 1, 4: 1}, started)
	require.Equal(t, []string{"research", "slow", "research", "synthesis"}, events[len(events)-2].GetAggregate().GetAgents())
	require.Equal(t, 1, g.gate.ModelCalls(key), "what the model of the lost branch had said is in its journal")
	messages, err := g.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	require.Len(t, messages.GetMessages(), 2, "the question and the answer: branches add nothing")
}

// awaitEnds waits until the given number of steps of the latest turn have ended.
func (g *gatedMesh) awaitEnds(t *testing.T, steps int) {
	t.Helper()
	traces, err := g.ListTraces(t.Context(), &troupev1.ListTracesRequest{PageSize: 1})
	require.NoError(t, err)
	for e, err := range g.Watch(t.Context(), traces.GetTraces()[0].GetTraceId(), 0) {
		require.NoError(t, err)
		if e.GetStepFinished() != nil {
			steps--
		}
		if steps == 0 {
			return
		}
	}
}
