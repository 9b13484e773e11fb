// Package scenario tests what the mesh promises to its clients. The same suite runs on every rig.
package scenario

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// Each test starts its own mesh. Most tests wait more than they compute, so they run in parallel; -parallel
// limits how many. TestReplicas, TestDrain and TestSession measure durations, so they run alone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start")) // started by the Gemini SDK
}

// scenarios lists the scenarios in the order in which they run on one mesh. Each scenario leaves all parts
// running.
var scenarios = []struct {
	name string
	run  func(t *testing.T, m *rig.Mesh)
}{
	{"AnswersWithSources", answersWithSources},
	{"SecondTurnContinuesTheSession", secondTurnContinuesTheSession},
	{"RepeatedRequestReturnsTheSameTurn", repeatedRequestReturnsTheSameTurn},
	{"ConcurrentRepeatsMakeOneTurn", concurrentRepeatsMakeOneTurn},
	{"VagueQuestionGetsClarified", vagueQuestionGetsClarified},
	{"SessionCanBeReadAndDeleted", sessionCanBeReadAndDeleted},
	{"RequestCanTargetAnAgent", requestCanTargetAnAgent},
	{"WatchStartsAfterAnySequence", watchStartsAfterAnySequence},
	{"TurnOutlivesItsClient", turnOutlivesItsClient},
	{"TurnEndsWithItsClient", turnEndsWithItsClient},
	{"SecondTurnIsRejectedWhileBusy", secondTurnIsRejectedWhileBusy},
	{"InvalidInputChangesNothing", invalidInputChangesNothing},
	{"ListsAgentsInstancesAndTraces", listsAgentsInstancesAndTraces},
	{"TurnMakesOnlyDocumentedWrites", turnMakesOnlyDocumentedWrites},
	{"SessionsAndTracesSurviveRestarts", sessionsAndTracesSurviveRestarts},
	{"RedisOutageLosesNothing", redisOutageLosesNothing},
	{"MemoryServiceKillLosesNothing", memoryServiceKillLosesNothing},
	{"TurnsRunWithoutEtcd", turnsRunWithoutEtcd},
	{"MissingAgentFailsOnlyTheTurn", missingAgentFailsOnlyTheTurn},
	{"TurnWaitsForARestartedWorker", turnWaitsForARestartedWorker},
	{"TurnWaitsForAPausedAgent", turnWaitsForAPausedAgent},
	{"DrainedInstanceExitsAndIsDeregistered", drainedInstanceExitsAndIsDeregistered},
	{"OperatorCommandsFailWithoutEtcd", operatorCommandsFailWithoutEtcd},
}

func TestInProcess(t *testing.T) {
	t.Parallel()
	runScenarios(t, rig.StartInProcess(t, rig.Config{RouteWait: 3 * time.Second}))
}

func TestBinaries(t *testing.T) {
	t.Parallel()
	runScenarios(t, rig.StartBinaries(t, rig.Config{RouteWait: 3 * time.Second}))
}

func runScenarios(t *testing.T, m *rig.Mesh) {
	for _, s := range scenarios {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, m) }) {
			return // a failed scenario may have left parts stopped
		}
	}
}

const question = "What may an agent write?"

func textRequest(s string) *troupev1.OrchestrateRequest {
	return &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Text{Text: s}, SessionId: uuid.NewString(), RequestId: uuid.NewString()}
}

// runTurn runs a request to its end and checks the rules that hold for every trace.
func runTurn(t *testing.T, m *rig.Mesh, req *troupev1.OrchestrateRequest) []*troupev1.Event {
	t.Helper()
	events, err := collectEvents(t.Context(), m, req)
	require.NoError(t, err)
	checkTrace(t, events)
	return events
}

func collectEvents(ctx context.Context, m *rig.Mesh, req *troupev1.OrchestrateRequest) (events []*troupev1.Event, _ error) {
	for e, err := range m.Turn(ctx, req) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// requireRejected sends a request without package client's retries and returns the error of the rejection.
func requireRejected(t *testing.T, m *rig.Mesh, req *troupev1.OrchestrateRequest) error {
	t.Helper()
	stream, err := m.Orchestrate(t.Context(), req)
	require.NoError(t, err)
	e, err := stream.Recv()
	require.Error(t, err, "got %v", e)
	return grpcfailure.FromStatus("scenario", err)
}

// durableEvents returns the events that are stored, which are all except the text deltas.
func durableEvents(events []*troupev1.Event) []*troupev1.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e *troupev1.Event) bool { return e.GetSequence() == 0 })
}

// checkTrace checks what holds for every complete trace. Sequences have no gap, the trace id stays the same,
// stages are in order, and the last event is the only result.
func checkTrace(t *testing.T, events []*troupev1.Event) {
	t.Helper()
	stored := durableEvents(events)
	require.NotEmpty(t, stored)
	var stages []troupev1.Stage
	for i, e := range stored {
		require.EqualValues(t, i+1, e.GetSequence())
		require.Equal(t, stored[0].GetTraceId(), e.GetTraceId())
		require.NotNil(t, e.GetTime())
		require.Equal(t, e == stored[len(stored)-1], e.GetTurnResult() != nil, "event %d of %d", i+1, len(stored))
		if len(stages) == 0 || stages[len(stages)-1] != e.GetStage() {
			stages = append(stages, e.GetStage())
		}
	}
	require.Regexp(t, `^INITIALIZE PLAN( ROUTE EXECUTE)*( ROUTE)?( AGGREGATE (COMPLETE|INPUT_REQUIRED)| FAILED| CANCELLED)$`, stageNames(stages))
}

func stageNames(stages []troupev1.Stage) string {
	var all []string
	for _, s := range stages {
		all = append(all, strings.TrimPrefix(s.String(), "STAGE_"))
	}
	return strings.Join(all, " ")
}

func turnResult(events []*troupev1.Event) *troupev1.TurnResult {
	return events[len(events)-1].GetTurnResult()
}

// agentsThatRan returns the agents whose steps finished, in order.
func agentsThatRan(events []*troupev1.Event) (all []string) {
	for _, e := range events {
		if e.GetStepFinished() != nil {
			all = append(all, e.GetAgent())
		}
	}
	return all
}

func failureFact(err error, key string) string {
	e, _ := errors.AsType[*failure.Error](err)
	return e.Facts[key]
}
