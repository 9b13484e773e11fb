package turn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// collectPayloads returns the event payloads of one kind.
func collectPayloads[T any](events []*troupev1.Event, payload func(*troupev1.Event) *T) (all []*T) {
	for _, e := range events {
		if p := payload(e); p != nil {
			all = append(all, p)
		}
	}
	return all
}

// Each stage publishes its data. The result belongs to the trace that its trace_id names.
// Req: OC-3
func TestTurn_PublishesTheDataOfEachStage(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	events := runToEnd(t, runner, textRequest("s1", "r1"))

	begin := events[0].GetTurnStarted()
	require.Equal(t, "What may an agent write?", begin.GetText())
	require.EqualValues(t, 4, begin.GetInstancesReady())
	require.Equal(t, "default", begin.GetProfile())

	plan := events[1].GetPlan()
	require.Equal(t, []string{"coordinator", "clarification", "research", "synthesis"}, plan.GetSteps())
	require.EqualValues(t, 4, plan.GetStepsCount())
	require.Positive(t, plan.GetDuration().AsDuration())
	require.EqualValues(t, 20, plan.GetBudget().GetSteps())
	require.Equal(t, time.Minute, plan.GetBudget().GetTime().AsDuration())

	routes := collectPayloads(events, (*troupev1.Event).GetRoutingDecision)
	var workers []string
	for _, r := range routes {
		workers = append(workers, r.GetTarget())
		require.NotEmpty(t, r.GetReason())
		require.Positive(t, r.GetDuration().AsDuration())
		require.Equal(t, troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION, r.GetType())
		require.NotEqual(t, r.GetTarget(), r.GetFallback())
	}
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, workers)

	var execute time.Duration
	steps := collectPayloads(events, (*troupev1.Event).GetStepFinished)
	require.Len(t, steps, 3)
	for i, s := range steps {
		require.Equal(t, workers[i], s.GetResult().GetAgent())
		require.Positive(t, s.GetDuration().AsDuration())
		execute += s.GetDuration().AsDuration()
	}
	require.Equal(t, "I am research.", steps[1].GetResult().GetText())

	sum := collectPayloads(events, (*troupev1.Event).GetAggregate)[0]
	last := events[len(events)-1]
	require.EqualValues(t, last.GetSequence()-1, sum.GetTraceLength())
	require.Equal(t, "I am synthesis.", sum.GetOutput())

	require.Equal(t, troupev1.Stage_STAGE_COMPLETE, last.GetStage())
	require.Equal(t, "I am synthesis.", last.GetTurnResult().GetText())
	stored, err := runner.cfg.Traces.Store().Events(t.Context(), trace.Ref{Trace: last.GetTraceId()}, 0, 100)
	require.NoError(t, err)
	require.Len(t, stored, int(last.GetSequence()))
	took := last.GetTurnResult().GetMetrics()
	require.Equal(t, plan.GetDuration().AsDuration(), took.GetPlan().AsDuration())
	require.Equal(t, routes[0].GetDuration().AsDuration()+routes[1].GetDuration().AsDuration()+routes[2].GetDuration().AsDuration(),
		took.GetRouting().AsDuration())
	require.Equal(t, execute, took.GetExecute().AsDuration())
	require.Equal(t, last.GetTurnResult().GetDuration().AsDuration(), took.GetTotal().AsDuration())
	require.Greater(t, took.GetTotal().AsDuration(), took.GetExecute().AsDuration())

	rig.setScript("research", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.AgentLogic, "agent", "no idea"))})
	})
	broken := turnResult(runToEnd(t, runner, textRequest("s2", "r1")))
	require.Equal(t, outcomeFailed, broken.GetOutcome())
	require.Contains(t, broken.GetFailure().GetMessage(), "no idea")
	require.Positive(t, broken.GetMetrics().GetTotal().AsDuration())
}

// One step fails and the workflow continues with its default. Another step is lost and retried. The last event has
// the durations and the usage of all of them.
// Req: OC-21
func TestTurn_MeasuresDurationsAndUsage(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	lost := false // steps run in sequence, so no lock is needed
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.AgentLogic, "agent", "no idea"))})
	})
	rig.setScript("research", func(s *scriptedStep) error {
		if !lost {
			lost = true
			return s.cutConnections()
		}
		return s.commitAnswer("At last.")
	})
	events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	m := turnResult(events).GetMetrics()
	require.EqualValues(t, 3, m.GetTotalSteps())
	require.EqualValues(t, 2, m.GetSuccessfulSteps())
	require.EqualValues(t, 1, m.GetFailedSteps())
	require.EqualValues(t, 1, m.GetRetries())
	require.EqualValues(t, 3, m.GetRoutingDecisions())
	require.Equal(t, m.GetExecute().AsDuration()/3, m.GetAverageStepDuration().AsDuration())
	require.Equal(t, troupev1.DecisionType_DECISION_TYPE_FALLBACK, collectPayloads(events, (*troupev1.Event).GetRoutingDecision)[1].GetType())
}
