package turn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// Another replica takes over the turn of an orchestrator that hangs. It continues under the same trace and does
// not rerun committed steps. Later writes of the first orchestrator change nothing.
func TestTurn_TakeoverContinuesWhereItStopped(t *testing.T) {
	rig := newRig(t)
	first, second := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	working, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	var abandoned error
	rig.setScript("synthesis", func(s *scriptedStep) error {
		rig.setScript("synthesis", nil) // the next attempt answers normally
		close(working)
		<-released
		_, abandoned = s.storeResult(func(r *troupev1.StepResult) { r.Text = "too late" })
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(abandoned)})
	})
	left := runUntilStepStarts(t, first, textRequest("s1", "r1"), "synthesis")
	receive(t, working)
	rig.expireLeases()

	events := runToEnd(t, second, textRequest("s1", "r1"))
	require.Equal(t, []string{
		"initialize turn_started", "plan plan",
		"route routing_decision coordinator", "execute step_started coordinator", "execute step_finished coordinator",
		"route routing_decision research", "execute step_started research", "execute step_finished research",
		"route routing_decision synthesis", "execute step_started synthesis",
		"execute text_retracted synthesis", "route warning",
		"route routing_decision synthesis", "execute step_started synthesis", "execute step_finished synthesis",
		"aggregate aggregate", "complete turn_result",
	}, eventSummary(durableEvents(events)))
	require.Equal(t, "TAKEN_OVER", durableEvents(events)[11].GetWarning().GetReason())
	require.Equal(t, "I am synthesis.", turnResult(events).GetText())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, events[len(events)-2].GetAggregate().GetAgents())
	require.Equal(t, []string{"coordinator", "research", "synthesis", "synthesis"}, rig.askedAgents())
	steps := rig.receivedSteps()
	require.Greater(t, steps[3].GetEpoch(), steps[2].GetEpoch())
	require.Empty(t, cmp.Diff(historyTexts(steps[2]), historyTexts(steps[3])), "the same history")
	require.Empty(t, cmp.Diff(steps[2].GetPrior(), steps[3].GetPrior(), protocmp.Transform()), "the same results before it")
	require.Equal(t, steps[2].GetBaseSequence(), steps[3].GetBaseSequence())

	release()
	require.NoError(t, receive(t, left), "its watchers go on with what the second stores")
	require.Equal(t, failure.Fenced, failure.ModeOf(abandoned))
	again := runToEnd(t, second, textRequest("s1", "r1"))
	require.Empty(t, cmp.Diff(durableEvents(events), durableEvents(again), protocmp.Transform()))
	record, err := second.cfg.Traces.Store().Get(t.Context(), trace.Ref{Trace: events[0].GetTraceId()})
	require.NoError(t, err)
	require.Equal(t, "two", record.GetOwner())
	require.EqualValues(t, 2, record.GetOwnerEpoch())
	require.Equal(t, session.Ready, rig.state(t, "s1"))
}

// runUntilStepStarts runs a request in the background until a step of an agent has started and its event is
// visible. The trace has its owner then. The channel receives the error with which the stream ends.
func runUntilStepStarts(t *testing.T, r *Runner, req request.Request, agent string) (ended <-chan error) {
	t.Helper()
	left, shown := make(chan error, 1), make(chan struct{})
	show := sync.OnceFunc(func() { close(shown) })
	go func() {
		var last error
		for e, err := range r.Orchestrate(t.Context(), req) {
			if last = err; e.GetStepStarted() != nil && e.GetAgent() == agent {
				show()
			}
		}
		left <- last
	}()
	receive(t, shown)
	return left
}

// historyTexts returns the texts of the history in a step request.
func historyTexts(req *troupev1.ExecuteStepRequest) (texts []string) {
	for _, m := range req.GetHistory() {
		texts = append(texts, m.GetParts()[0].GetText())
	}
	return texts
}

// durableEvents returns the events without text deltas.
func durableEvents(events []*troupev1.Event) (all []*troupev1.Event) {
	for _, e := range events {
		if e.GetSequence() > 0 {
			all = append(all, e)
		}
	}
	return all
}

// A takeover keeps the routes of the turn: results that are committed later do not change them.
func TestTurn_TakeoverKeepsItsRoutes(t *testing.T) {
	rig := newRig(t)
	first := rig.newRunner(t, "one")
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.NextAgent = "clarification" })
	})
	rig.setScript("clarification", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.Text, r.InputRequired = "Which one?", true })
	})
	runToEnd(t, first, textRequest("s1", "question"))

	working := make(chan struct{})
	rig.setScript("synthesis", func(s *scriptedStep) error {
		rig.setScript("synthesis", nil)
		close(working)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	runUntilStepStarts(t, first, textRequest("s1", "reply"), "synthesis")
	receive(t, working)
	rig.expireLeases()
	events := runToEnd(t, rig.newRunner(t, "two"), textRequest("s1", "reply"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "clarification", "research", "synthesis", "synthesis"}, rig.askedAgents())
}

// An orchestrator that dies before it stores an event leaves a turn without a trace. The error explains how to
// continue. The same request continues the turn after the lease has expired.
func TestRunner_TakesOverATurnWithoutATrace(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	req := textRequest("s1", "r1")
	_, err := rig.memory.BeginTurn(t.Context(), memory.Begin{
		Ref: req.Ref, TurnID: session.TurnID(req.Ref, req.RequestID), TraceID: decide.NewTraceID(), Fingerprint: req.Fingerprint(),
		Message: conversation.User(req.Text), LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	for e, err := range runner.Orchestrate(t.Context(), req) {
		require.Nil(t, e)
		require.Equal(t, failure.TraceOrphaned, failure.ModeOf(err), "%v", err)
		require.ErrorContains(t, err, "the same request takes it over in 1m0s")
	}
	rig.expireLeases()
	events := runToEnd(t, runner, req)
	require.Equal(t, "initialize turn_started", eventSummary(events)[0])
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
}

// Turns are kept longer than traces. When the trace has expired, a repeated request is answered from the turn and
// never runs again (guarantee F13).
func TestRunner_AnswersFromTheTurnWhenItsTraceExpired(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	before := runToEnd(t, runner, textRequest("s1", "answered"))
	rig.setScript("research", failingStep(failure.ResourceMemory))
	runToEnd(t, runner, textRequest("s1", "failed"))
	awaitIdle(t, runner)
	rig.redis.FastForward(retention + time.Minute)
	ran := len(rig.askedAgents())

	events := runToEnd(t, runner, textRequest("s1", "answered"))
	require.Equal(t, []string{
		"initialize turn_started", "execute step_finished coordinator", "execute step_finished research", "execute step_finished synthesis",
		"aggregate aggregate", "complete turn_result",
	}, eventSummary(events))
	require.Equal(t, before[0].GetTraceId(), events[0].GetTraceId())
	require.EqualValues(t, 1, events[0].GetTurn())
	want, got := turnResult(before), turnResult(events)
	require.Equal(t, want.GetText(), got.GetText())
	require.Equal(t, want.GetAgent(), got.GetAgent())
	require.Empty(t, cmp.Diff(want.GetUsage(), got.GetUsage(), protocmp.Transform()))

	events = runToEnd(t, runner, textRequest("s1", "failed"))
	require.Equal(t, []string{"initialize turn_started", "execute step_finished coordinator", "failed turn_result"}, eventSummary(events))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_RESOURCE_MEMORY, turnResult(events).GetFailure().GetMode())
	require.Len(t, rig.askedAgents(), ran)
}

// The orchestrator closed the turn and died before it stored the last event. Repeating the request ends the trace
// for its watchers.
func TestRunner_EndsTheTraceOfAClosedTurn(t *testing.T) {
	rig := newRig(t)
	first, second := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var ref trace.Ref
	shown := make(chan struct{})
	rig.setScript("synthesis", func(s *scriptedStep) error { // its orchestrator cannot store the end
		<-shown // the trace has its owner, which is about to be lost
		if _, err := s.storeResult(func(r *troupev1.StepResult) { r.Text = "It is committed." }); err != nil {
			return err
		}
		_, _, err := first.cfg.Traces.Store().Claim(ctx, trace.Claim{
			Record: &troupev1.Trace{TraceId: s.req.GetTraceId()},
			Turn:   trace.TurnInfo{TurnEpoch: s.req.GetEpoch()},
		})
		return errors.Join(err, s.cutConnections())
	})
	left := make(chan *troupev1.Event, 1)
	go func() {
		var last *troupev1.Event
		for e, err := range first.Orchestrate(ctx, textRequest("s1", "r1")) {
			if err != nil {
				break // the caller has left
			}
			if last = e; ref.Trace == "" {
				ref.Trace = e.GetTraceId()
			}
			if e.GetStepStarted() != nil && e.GetAgent() == "synthesis" {
				close(shown)
			}
		}
		left <- last
	}()
	receive(t, shown)
	awaitAbandoned(t, first, ref)

	events := runToEnd(t, second, textRequest("s1", "r1"))
	require.Equal(t, "It is committed.", turnResult(events).GetText())
	require.Equal(t, ref.Trace, events[0].GetTraceId())
	require.Equal(t, []string{
		"execute step_started synthesis", "execute text_retracted synthesis", "execute step_finished synthesis", "aggregate aggregate", "complete turn_result",
	}, eventSummary(durableEvents(events))[9:], "everything is published")
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, rig.askedAgents(), "nothing ran again")
	require.Empty(t, cmp.Diff(turnResult(events), receive(t, left).GetTurnResult(), protocmp.Transform()), "for watchers on every replica")
	record, err := second.cfg.Traces.Store().Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, troupev1.TraceState_TRACE_STATE_ENDED, record.GetState())
}

// awaitAbandoned waits until a runner no longer drives a trace.
func awaitAbandoned(t *testing.T, r *Runner, ref trace.Ref) {
	t.Helper()
	require.Eventually(t, func() bool { return r.active.FindByTrace(ref) == nil }, patience, time.Millisecond)
}

// The failure of a routing step is not stored. A takeover does not run the routing step again if the step after it
// is stored, because the model could choose another route.
func TestTurn_TakeoverKeepsTheDefaultRoute(t *testing.T) {
	rig := newRig(t)
	rig.setScript("coordinator", func(s *scriptedStep) error {
		rig.setScript("coordinator", nil)
		return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(failure.ResourceAPI, "test", "away"))})
	})
	working := make(chan struct{})
	rig.setScript("synthesis", func(s *scriptedStep) error {
		rig.setScript("synthesis", nil)
		close(working)
		<-s.stream.Context().Done()
		return s.stream.Context().Err()
	})
	first := rig.newRunner(t, "one")
	runUntilStepStarts(t, first, textRequest("s1", "r1"), "synthesis")
	receive(t, working)
	rig.expireLeases()
	events := runToEnd(t, rig.newRunner(t, "two"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{"coordinator", "research", "synthesis", "synthesis"}, rig.askedAgents())
	require.Equal(t, []string{"coordinator", "research", "synthesis"}, events[len(events)-2].GetAggregate().GetAgents())
}

// unclaimableTraces is a trace store that rejects every takeover.
type unclaimableTraces struct{ trace.Store }

func (unclaimableTraces) Claim(context.Context, trace.Claim) (int64, uint64, error) {
	return 0, 0, failure.New(failure.SystemDisk, "test", "no")
}

// A turn whose trace cannot be claimed fails at once, and its session need not wait for the lease to expire.
func TestRunner_FailsATurnThatCannotBeTakenOver(t *testing.T) {
	rig := newRig(t)
	req := textRequest("s1", "r1")
	_, err := rig.memory.BeginTurn(t.Context(), memory.Begin{
		Ref: req.Ref, TurnID: session.TurnID(req.Ref, req.RequestID), TraceID: decide.NewTraceID(), Fingerprint: req.Fingerprint(),
		Message: conversation.User(req.Text), LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	rig.expireLeases()
	runner := rig.newRunner(t, "one")
	replaceRunner(t, runner, func(c *Config) { c.Traces = trace.New(unclaimableTraces{runner.cfg.Traces.Store()}, zap.NewNop()) })
	for e, err := range runner.Orchestrate(t.Context(), req) {
		require.Nil(t, e)
		require.Equal(t, failure.SystemDisk, failure.ModeOf(err), "%v", err)
	}
	require.Equal(t, session.Failed, rig.state(t, "s1"))
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, rig.newRunner(t, "two"), textRequest("s1", "r2"))).GetOutcome())
}

// A repeated request finds its turn even when no agent could handle a new one.
func TestRunner_FindsAKnownTurnAfterItsAgentLeft(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	guest := registry.Instance{ID: "guest-1", Agent: "guest", Address: rig.address, State: lifecycle.Ready, Capacity: 1}
	rig.cache.Apply(registry.Update{Put: &guest})
	req := textRequest("s1", "r1")
	req.Target = "guest"
	before := runToEnd(t, runner, req)
	key := guest.Key()
	rig.cache.Apply(registry.Update{Delete: &key})
	require.Empty(t, cmp.Diff(durableEvents(before), durableEvents(runToEnd(t, runner, req)), protocmp.Transform()))
	req.RequestID = "r2"
	for _, err := range runner.Orchestrate(t.Context(), req) {
		require.Equal(t, failure.NotFound, failure.ModeOf(err), "%v", err)
	}

	// Before the registry was read, no instance is known. An unknown agent is then not rejected.
	rig.cache = instances.New(zap.NewNop(), func(bool, map[string]bool) {})
	for _, err := range rig.newRunner(t, "two").Orchestrate(t.Context(), req) {
		require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "%v", err)
	}
}
