package scenario

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/gate"
)

// These tests show which failures a turn survives, and how the next turn of the same session behaves (guarantees
// F1 to F6, F14, F22).

// gatedMesh is a mesh with workers whose steps wait at a gate until the test opens it.
type gatedMesh struct {
	*rig.Mesh
	gate *gate.Gate
}

const slowWorkers = 3 // workers of the slow agent

var durableScenarios = []struct {
	name string
	run  func(*testing.T, *gatedMesh)
}{
	{"StepMovesToAnotherWorker", stepMovesToAnotherWorker},
	{"MemoryServiceKillDuringStepLosesNothing", memoryServiceKillDuringStepLosesNothing},
	{"RedisKillDuringStepLosesNothing", redisKillDuringStepLosesNothing},
	{"QueuedRequestsRunOneAtATime", queuedRequestsRunOneAtATime},
	{"InterruptCancelsTheRunningTurn", interruptCancelsTheRunningTurn},
	{"SlowClientResumes", slowClientResumes},
	{"CredentialsBelongToOneTurn", credentialsBelongToOneTurn},
	{"CredentialsStayInTheirSession", credentialsStayInTheirSession},
	{"RedispatchedStepHasItsCredentials", redispatchedStepHasItsCredentials},
	{"MovedFlowRepeatsNoFinishedAgent", movedFlowRepeatsNoFinishedAgent},
	{"ThreeLostAttemptsFailTheTurn", threeLostAttemptsFailTheTurn},
}

func TestDurable_InProcess(t *testing.T) {
	t.Parallel()
	runDurable(t, newGatedMesh(t, rig.StartInProcess(t, rig.Config{})))
}

func TestDurable_Binaries(t *testing.T) {
	t.Parallel()
	s := newGatedMesh(t, rig.StartBinaries(t, rig.Config{}))
	if runDurable(t, s) {
		t.Run("FrozenWorkerLosesItsStep", func(t *testing.T) { frozenWorkerLosesItsStep(t, s) })
	}
}

func newGatedMesh(t *testing.T, m *rig.Mesh) *gatedMesh {
	t.Helper()
	s := &gatedMesh{m, gate.New(t)}
	for n := range slowWorkers {
		s.HostWorker(rig.SlowWorker(s.gate, n+1))
	}
	s.awaitAll(t)
	return s
}

func runDurable(t *testing.T, s *gatedMesh) bool {
	for _, d := range durableScenarios {
		if !t.Run(d.name, func(t *testing.T) { d.run(t, s); s.awaitAll(t) }) {
			return false // a failed scenario may have left parts stopped
		}
	}
	return true
}

// awaitAll waits until every worker of the agent slow accepts steps.
func (g *gatedMesh) awaitAll(t *testing.T) {
	t.Helper()
	g.AwaitReady()
	g.Await("every slow worker is ready", func() bool {
		up := 0
		for _, in := range listInstances(t, g.Mesh, "slow") {
			if in.GetState() == troupev1.InstanceState_INSTANCE_STATE_READY && !in.GetMissing() {
				up++
			}
		}
		return up == slowWorkers
	})
}

// slowRequest returns a request whose step waits at the gate, and the key with which the test opens the gate.
func slowRequest(verb string) (req *troupev1.OrchestrateRequest, key string) {
	key = uuid.NewString()
	req = textRequest(verb + " " + key)
	req.Target = "slow"
	return req, key
}

// startTurn runs a request to its end in the background. wait waits for the end and returns the turn's events.
func (g *gatedMesh) startTurn(t *testing.T, req *troupev1.OrchestrateRequest) (wait func() []*troupev1.Event) {
	t.Helper()
	var events []*troupev1.Event
	var group errgroup.Group
	group.Go(func() (err error) {
		events, err = collectEvents(t.Context(), g.Mesh, req)
		return err
	})
	return func() []*troupev1.Event {
		t.Helper()
		require.NoError(t, group.Wait())
		checkTrace(t, events)
		return events
	}
}

// requireAnsweredOnce checks that the turn has exactly one answer, in its events and in its session. Repeating the
// request must return the same events.
func (g *gatedMesh) requireAnsweredOnce(t *testing.T, req *troupev1.OrchestrateRequest, events []*troupev1.Event) {
	t.Helper()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Contains(t, turnResult(events).GetText(), "The gate is open.")
	resp, err := g.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	answers := 0
	for _, m := range resp.GetMessages() {
		if m.GetRole() == troupev1.Role_ROLE_ASSISTANT && len(m.GetToolCalls()) == 0 {
			answers++
		}
	}
	require.Equal(t, 1, answers, "%v", resp.GetMessages())
	require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(runTurn(t, g.Mesh, req)), protocmp.Transform()), "nothing runs again")
}

// retractions returns the events that retract text of a lost attempt.
func retractions(events []*troupev1.Event) (lost []*troupev1.Event) {
	for _, e := range events {
		if e.GetTextRetracted() != nil {
			lost = append(lost, e)
		}
	}
	return lost
}

// The worker is killed (in process: drained) in the middle of a tool call. Another worker continues after the last
// journal entry, and the client's stream continues too.
func stepMovesToAnotherWorker(t *testing.T, s *gatedMesh) {
	req, key := slowRequest("hold")
	wait := s.startTurn(t, req)
	first := s.gate.AwaitCall(t, key)
	s.Kill(rig.Part(first))
	second := s.gate.AwaitCall(t, key)
	require.NotEqual(t, first, second)
	s.gate.Open(key)
	events := wait()
	s.requireAnsweredOnce(t, req, events)
	require.Equal(t, 1, s.gate.ModelCalls(key), "what the model said before is in the journal")
	lost := retractions(events)
	require.Len(t, lost, 1)
	require.Equal(t, first, lost[0].GetInstanceId())
	require.EqualValues(t, 1, lost[0].GetAttempt())
	for _, e := range events {
		if e.GetStepFinished() != nil {
			require.EqualValues(t, 2, e.GetAttempt())
			require.Equal(t, second, e.GetInstanceId())
		}
	}
	s.Start(rig.Part(first))
}

func memoryServiceKillDuringStepLosesNothing(t *testing.T, s *gatedMesh) {
	checkKillDuringStep(t, s, rig.Memory)
}

func redisKillDuringStepLosesNothing(t *testing.T, s *gatedMesh) {
	checkKillDuringStep(t, s, rig.Redis)
}

// The step ends while the store is down. Its result is stored as soon as the store is up again.
func checkKillDuringStep(t *testing.T, s *gatedMesh, p rig.Part) {
	t.Helper()
	req, key := slowRequest("hold")
	wait := s.startTurn(t, req)
	s.gate.AwaitCall(t, key)
	s.Kill(p)
	s.gate.Open(key)
	s.Await("the orchestrator is not ready", func() bool { return !s.IsReady(rig.Orchestrator) })
	s.Start(p)
	events := wait()
	require.Empty(t, retractions(events))
	s.AwaitReady()
	s.requireAnsweredOnce(t, req, events)
}

func threeLostAttemptsFailTheTurn(t *testing.T, s *gatedMesh) {
	req, key := slowRequest("hold")
	wait := s.startTurn(t, req)
	for range slowWorkers {
		s.Kill(rig.Part(s.gate.AwaitCall(t, key)))
	}
	events := wait()
	failed := turnResult(events).GetFailure()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_FAILED, turnResult(events).GetOutcome())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_ATTEMPTS_EXHAUSTED, failed.GetMode(), "%v", failed)
	for _, id := range []string{"slow-1", "slow-2", "slow-3"} {
		require.Contains(t, failed.GetFacts()["instances"], id)
	}
	require.Len(t, retractions(events), 2)
	for n := range slowWorkers {
		part, _ := rig.SlowWorker(s.gate, n+1)
		s.Start(part)
	}
}

func queuedRequestsRunOneAtATime(t *testing.T, s *gatedMesh) {
	req, key := slowRequest("hold")
	wait := s.startTurn(t, req)
	s.gate.AwaitCall(t, key)
	next := func(onBusy troupev1.OnBusy) *troupev1.OrchestrateRequest {
		more := textRequest(question)
		more.SessionId, more.OnBusy = req.GetSessionId(), onBusy
		return more
	}
	var waits []func() []*troupev1.Event
	for range 3 {
		waits = append(waits, s.startTurn(t, next(troupev1.OnBusy_ON_BUSY_ENQUEUE)))
	}
	err := requireRejected(t, s.Mesh, next(troupev1.OnBusy_ON_BUSY_REJECT))
	require.True(t, failure.Is(err, failure.SessionBusy), "%v", err)
	require.NotEmpty(t, failureFact(err, "trace_id"))
	s.gate.Open(key)
	require.EqualValues(t, 1, wait()[0].GetTurn())
	turns := map[int32]bool{}
	for _, wait := range waits {
		events := wait()
		require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
		turns[events[0].GetTurn()] = true
	}
	require.Equal(t, map[int32]bool{2: true, 3: true, 4: true}, turns)
}

func interruptCancelsTheRunningTurn(t *testing.T, s *gatedMesh) {
	req, key := slowRequest("hold")
	wait := s.startTurn(t, req)
	s.gate.AwaitCall(t, key)
	urgent := textRequest(question)
	urgent.SessionId, urgent.OnBusy = req.GetSessionId(), troupev1.OnBusy_ON_BUSY_INTERRUPT
	events := runTurn(t, s.Mesh, urgent)
	require.EqualValues(t, 2, events[0].GetTurn())
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
	events = wait()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED, turnResult(events).GetOutcome())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_USER_CANCELLED, turnResult(events).GetFailure().GetMode())
	s.gate.Open(key)
}

// The orchestrator closes the stream of a client that does not read, and the turn continues. Package client
// resumes such a stream automatically.
func slowClientResumes(t *testing.T, s *gatedMesh) {
	req, key := slowRequest("tell")
	raw, err := s.Orchestrate(t.Context(), req)
	require.NoError(t, err)
	s.gate.AwaitCall(t, key)
	var events []*troupev1.Event
	for e, err := range s.Turn(t.Context(), req) {
		require.NoError(t, err)
		if events = append(events, e); len(events) > 1 {
			continue
		}
		s.gate.Open(key) // the client reads nothing until the turn has ended
		s.Await("the turn has ended", func() bool {
			trace, err := s.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: e.GetTraceId()})
			return err == nil && trace.GetTrace().GetState() == troupev1.TraceState_TRACE_STATE_ENDED
		})
		over := time.Now().Add(7 * time.Second)
		s.Await("the streams are given up", func() bool { return time.Now().After(over) })
		last, err := readToEnd(raw)
		require.True(t, failure.Is(err, failure.SlowConsumer), "%v", err)
		require.Equal(t, strconv.FormatUint(last, 10), failureFact(err, "resume_after"))
	}
	checkTrace(t, events)
	s.requireAnsweredOnce(t, req, events)
}

// readToEnd reads a stream to its end and returns the last sequence and the error.
func readToEnd(stream troupev1.OrchestratorService_OrchestrateClient) (last uint64, _ error) {
	for {
		r, err := stream.Recv()
		if err != nil {
			return last, grpcfailure.FromStatus("scenario", err)
		}
		last = max(last, r.GetEvent().GetSequence())
	}
}

// Another worker takes over the step of a frozen worker. When the frozen worker continues, it cannot change
// anything.
func frozenWorkerLosesItsStep(t *testing.T, s *gatedMesh) {
	req, key := slowRequest("hold")
	wait := s.startTurn(t, req)
	first := s.gate.AwaitCall(t, key)
	thaw := s.Freeze(rig.Part(first))
	defer thaw()
	second := s.gate.AwaitCall(t, key)
	require.NotEqual(t, first, second)
	s.gate.Open(key)
	events := wait()
	lost := retractions(events)
	require.Len(t, lost, 1)
	require.Equal(t, first, lost[0].GetInstanceId())
	require.Contains(t, lost[0].GetTextRetracted().GetFailure().GetMessage(), "went silent while it worked")
	thaw()
	s.awaitAll(t)
	s.requireAnsweredOnce(t, req, events)
}
