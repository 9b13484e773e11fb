package turn

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	gate "github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/takeover"
)

// loseOwnerDuringResearch runs a request until research works. The runner then behaves as if killed: it renews no
// lease, and its later writes change nothing.
func (r *rig) loseOwnerDuringResearch(t *testing.T, req request.Request) (first *Runner, ref trace.Ref, left <-chan error) {
	t.Helper()
	first = r.newRunner(t, "one")
	working, _, _ := r.blockResearch()
	left = runUntilStepStarts(t, first, req, "research")
	receive(t, working)
	ref = trace.Ref{Trace: first.active.FindBySession(req.Ref).TraceID}
	awaitStored(t, first, ref)
	return first, ref, left
}

// awaitStored waits until the trace is stored and other runners find it. A runner dispatches a step without
// waiting for the store.
func awaitStored(t *testing.T, r *Runner, ref trace.Ref) {
	t.Helper()
	stored := func() bool {
		_, err := r.cfg.Traces.Store().Get(t.Context(), ref)
		return err == nil
	}
	require.Eventually(t, stored, patience, time.Millisecond)
}

// watchedEvents returns the events that another runner yields for a trace, up to its end.
func watchedEvents(t *testing.T, r *Runner, ref trace.Ref, after uint64) (events []*troupev1.Event) {
	t.Helper()
	for e, err := range r.cfg.Traces.Watch(t.Context(), ref, after) {
		require.NoError(t, err)
		events = append(events, e)
	}
	return events
}

// runMaintenance runs Maintain of a runner until the test ends.
func runMaintenance(t *testing.T, r *Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var tending sync.WaitGroup
	tending.Go(func() { r.Maintain(ctx) })
	t.Cleanup(func() { cancel(); tending.Wait() })
}

// panickingTraces is a trace store whose first Claim panics.
type panickingTraces struct {
	trace.Store
	hasPanicked bool
}

func (p *panickingTraces) Claim(ctx context.Context, c trace.Claim) (int64, uint64, error) {
	if !p.hasPanicked {
		p.hasPanicked = true
		panic("poisoned")
	}
	return p.Store.Claim(ctx, c)
}

// A panic during a takeover does not crash the replica. The permit is released, and the trace can be taken over
// again.
func TestRunner_ContainsAPanicDuringTakeover(t *testing.T) {
	rig := newRig(t)
	_, ref, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
	rig.limits = gate.Config{MaxTurns: func() int { return 1 }}
	second := rig.newRunner(t, "two")
	replaceRunner(t, second, func(c *Config) {
		c.Traces = trace.New(&panickingTraces{Store: second.cfg.Traces.Store()}, zap.NewNop())
	})
	require.NotPanics(t, func() { second.reconciler.TakeOver(t.Context(), ref) })
	require.Nil(t, second.active.FindByTrace(ref))
	pass, free := second.cfg.Permits.TryAdmit("")
	require.True(t, free)
	pass.Release(false)

	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
}

// An orphaned turn is taken over without a repeated request and before its lease expires. It continues without
// credentials, because these are never stored.
func TestRunner_TakesOverAnOrphanedTrace(t *testing.T) {
	rig := newRig(t)
	_, ref, left := rig.loseOwnerDuringResearch(t, requestWithAuth("alice", "s1", "r1"))
	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)

	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Equal(t, []string{
		"route routing_decision research", "execute step_started research",
		"execute text_retracted research", "route warning", "route warning",
		"route routing_decision research", "execute step_started research", "execute step_finished research",
		"route routing_decision synthesis", "execute step_started synthesis", "execute step_finished synthesis",
		"aggregate aggregate", "complete turn_result",
	}, eventSummary(durableEvents(events))[5:])
	require.Equal(t, "TAKEN_OVER", durableEvents(events)[8].GetWarning().GetReason())
	require.Equal(t, "CREDENTIALS_LOST", durableEvents(events)[9].GetWarning().GetReason())
	rig.requireCredentials(t, "alice", "alice", "", "")
	require.EqualValues(t, 2, rig.receivedSteps()[2].GetAttempt())
	require.NoError(t, receive(t, left), "who watched it at the first sees it end")
	record, err := second.cfg.Traces.Store().Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, "two", record.GetOwner())
}

// Maintenance takes over orphans among the open traces and does not touch traces with a live owner.
func TestRunner_MaintenanceTakesOverOrphansOnly(t *testing.T) {
	rig := newRig(t)
	second := rig.newRunner(t, "two")
	runMaintenance(t, second)
	_, orphan, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))

	living := rig.newRunner(t, "three")
	runMaintenance(t, living)
	working, released := make(chan struct{}), make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error {
		rig.setScript("research", nil)
		close(working)
		alive := time.NewTicker(time.Second)
		defer alive.Stop()
		for {
			select {
			case <-alive.C:
				if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_Thinking{Thinking: &troupev1.Thinking{}}}); err != nil {
					return err
				}
			case <-released:
				return s.commitAnswer("I am research.")
			}
		}
	})
	done := startRequest(t, living, textRequest("s2", "r2"))
	receive(t, working)

	events := watchedEvents(t, rig.newRunner(t, "four"), orphan, 0)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	close(released)
	events = receive(t, done)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.NotContains(t, eventSummary(events), "route warning", "no replica took it over")
	record, err := second.cfg.Traces.Store().Get(t.Context(), trace.Ref{Trace: events[0].GetTraceId()})
	require.NoError(t, err)
	require.EqualValues(t, 1, record.GetOwnerEpoch())
}

// If many replicas find the same orphan, one takes it over. Each step runs at most once more.
func TestRunner_OneOfManyReplicasTakesOver(t *testing.T) {
	rig := newRig(t)
	_, ref, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
	var all sync.WaitGroup
	runners := []*Runner{rig.newRunner(t, "a"), rig.newRunner(t, "b"), rig.newRunner(t, "c"), rig.newRunner(t, "d")}
	for _, r := range runners {
		all.Go(func() { r.reconciler.TakeOver(t.Context(), ref) })
	}
	all.Wait()
	var seen []*troupev1.Event
	for n, r := range runners {
		events := durableEvents(watchedEvents(t, r, ref, 0))
		require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
		if n > 0 {
			require.Empty(t, cmp.Diff(seen, events, protocmp.Transform()))
		}
		seen = events
	}
	answers := 0
	messages, err := rig.memory.LoadHistory(t.Context(), session.Ref{Session: "s1"}, 0, 100)
	require.NoError(t, err)
	for _, m := range messages {
		if m.Role == conversation.RoleAssistant {
			answers++
		}
	}
	require.Equal(t, 2, answers, "research and synthesis, once each")
}

// An orphan that is found after its timeout fails and does not run again.
func TestRunner_FailsAnOrphanThatTimedOut(t *testing.T) {
	rig := newRig(t)
	req := textRequest("s1", "r1")
	req.Timeout = time.Minute
	_, ref, _ := rig.loseOwnerDuringResearch(t, req)
	second := rig.newRunner(t, "two")
	rig.redis.SetTime(time.Now().Add(2 * time.Minute))
	ran := len(rig.askedAgents())
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, outcomeFailed, turnResult(events).GetOutcome())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_PARTIAL_TIMEOUT, turnResult(events).GetFailure().GetMode(), "the coordinator has ended")
	require.Contains(t, turnResult(events).GetFailure().GetMessage(), "within its 1m0s")
	require.Len(t, rig.askedAgents(), ran)
	require.Equal(t, session.Failed, rig.state(t, "s1"))
}

// The owner was lost after the commit that closed the turn. The replica that finds the trace publishes the
// remaining events.
func TestRunner_EndsAnOrphanWhoseTurnIsClosed(t *testing.T) {
	rig := newRig(t)
	first := rig.newRunner(t, "one")
	working := make(chan *scriptedStep, 1)
	released := make(chan struct{})
	rig.setScript("synthesis", func(s *scriptedStep) error { working <- s; <-released; return s.cutConnections() })
	runUntilStepStarts(t, first, textRequest("s1", "r1"), "synthesis")
	s := receive(t, working)
	ref := trace.Ref{Trace: s.req.GetTraceId()}
	_, err := s.storeResult(func(r *troupev1.StepResult) { r.Text = "It is committed." })
	require.NoError(t, err)

	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, "It is committed.", turnResult(events).GetText())
	require.Equal(t, []string{"execute text_retracted synthesis", "execute step_finished synthesis", "aggregate aggregate", "complete turn_result"},
		eventSummary(events)[len(events)-4:])
	close(released)
}

// When a session is deleted, its turn ends. Its trace must not stay open for ever.
func TestRunner_EndsAnOrphanWhoseSessionIsDeleted(t *testing.T) {
	rig := newRig(t)
	_, ref, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
	_, err := rig.memory.DeleteSession(t.Context(), session.Ref{Session: "s1"})
	require.NoError(t, err)
	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, outcomeFailed, turnResult(events).GetOutcome())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_SESSION_DELETED, turnResult(events).GetFailure().GetMode())
}

// A child turn is erased together with its parent's session. Its trace contains the parent, so any replica can
// tell this.
func TestRunner_ErasesAnOrphanWhoseParentIsErased(t *testing.T) {
	rig := newRig(t)
	above := trace.Ref{Trace: strings.Repeat("b", 32)}
	whose := trace.Subject{Session: "above"}
	second := rig.newRunner(t, "two")
	store := second.cfg.Traces.Store()
	_, _, err := store.Claim(t.Context(), trace.Claim{Record: &troupev1.Trace{TraceId: above.Trace, SessionId: whose.Session, Owner: "one"}})
	require.NoError(t, err)
	req := textRequest("s1", "r1")
	req.ParentTrace = above.Trace
	_, ref, _ := rig.loseOwnerDuringResearch(t, req)
	_, err = store.BeginErasure(t.Context(), whose, "admin ann", false)
	require.NoError(t, err)
	require.NoError(t, store.EraseTraces(t.Context(), whose.Ref()))

	second.reconciler.TakeOver(t.Context(), ref)
	_, err = store.Get(t.Context(), ref)
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
	rig.redis.SetTime(time.Now().Add(time.Minute))
	left, err := store.UnfinishedErasures(t.Context(), 9)
	require.NoError(t, err)
	require.Contains(t, left, trace.Subject{Session: "s1"})
}

// A turn that crashes its orchestrators is failed before it has crashed all of them.
func TestRunner_LimitsTakeoversOfATurn(t *testing.T) {
	rig := newRig(t)
	_, ref, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
	second := rig.newRunner(t, "two")
	record, err := second.cfg.Traces.Store().Load(t.Context(), ref)
	require.NoError(t, err)
	for range takeover.MaxOwners - 1 {
		_, _, err := second.cfg.Traces.Store().Claim(t.Context(), trace.Claim{Record: record.Record, Turn: record.Turn})
		require.NoError(t, err)
	}
	ran := len(rig.askedAgents())
	second.reconciler.TakeOver(t.Context(), ref)
	events := watchedEvents(t, second, ref, 0)
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_ATTEMPTS_EXHAUSTED, turnResult(events).GetFailure().GetMode(), "%v", turnResult(events))
	require.Len(t, rig.askedAgents(), ran)
}

// changingOwnerMemory is a memory service whose turn changes owner during a lookup.
type changingOwnerMemory struct {
	admit.Memory
	meanwhile func()
}

func (c *changingOwnerMemory) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := c.Memory.BeginTurn(ctx, b)
	if b.LookupOnly {
		c.meanwhile()
	}
	return begun, err
}

// A replica that looked up the turn before it changed owner cannot take the trace from the new owner.
func TestRunner_DoesNotTakeOverATraceThatIsStillOwned(t *testing.T) {
	rig := newRig(t)
	_, ref, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
	slow, quick := rig.newRunner(t, "slow"), rig.newRunner(t, "quick")
	found, err := slow.cfg.Traces.Store().Load(t.Context(), ref)
	require.NoError(t, err)
	working, _, release := rig.blockResearch()
	defer release()
	late := &changingOwnerMemory{Memory: slow.cfg.Memory, meanwhile: sync.OnceFunc(func() {
		quick.reconciler.TakeOver(t.Context(), ref)
		receive(t, working)
	})}
	replaceRunner(t, slow, func(c *Config) { c.Memory = late })
	slow.reconciler.TakeOver(t.Context(), ref)
	require.Nil(t, slow.active.FindByTrace(ref))
	require.NotNil(t, quick.active.FindByTrace(ref))
	_, _, err = slow.cfg.Traces.Store().Claim(t.Context(), trace.Claim{Record: found.Record, Turn: found.Turn})
	require.True(t, failure.Is(err, failure.Fenced), "the trace goes with the turn: %v", err)
	release()
	require.Equal(t, outcomeCompleted, turnResult(watchedEvents(t, quick, ref, 0)).GetOutcome())
}

// Req: OC-5
func TestRunner_CancelTraceReachesAnotherOwner(t *testing.T) {
	rig := newRig(t)
	owner, other := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	runMaintenance(t, owner)
	working, cancelled, release := rig.blockResearch()
	defer release()
	done := startRequest(t, owner, textRequest("s1", "r1"))
	receive(t, working)
	ref := trace.Ref{Trace: owner.active.FindBySession(session.Ref{Session: "s1"}).TraceID}
	awaitStored(t, owner, ref)
	require.NoError(t, other.CancelTrace(t.Context(), ref, "changed my mind"))
	events := receive(t, done)
	require.Equal(t, cancelledOutcome, turnResult(events).GetOutcome())
	require.Contains(t, turnResult(events).GetFailure().GetMessage(), "changed my mind")
	receive(t, cancelled)
}

// A request can interrupt a turn that another runner drives.
func TestRunner_InterruptReachesAnotherOwner(t *testing.T) {
	rig := newRig(t)
	owner, other := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	runMaintenance(t, owner)
	working, cancelled, release := rig.blockResearch()
	defer release()
	done := startRequest(t, owner, textRequest("s1", "r1"))
	receive(t, working)
	next := startRequest(t, other, requestWithBusyPolicy("r2", request.Interrupt))
	require.Equal(t, cancelledOutcome, turnResult(receive(t, done)).GetOutcome())
	receive(t, cancelled)
	release()
	events := receive(t, next)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.EqualValues(t, 2, events[0].GetTurn())
}

// A stop request that the lost owner did not receive is applied by the replica that takes over.
func TestRunner_CancelsAnOrphanThatWasCancelled(t *testing.T) {
	rig := newRig(t)
	_, ref, _ := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
	second := rig.newRunner(t, "two")
	require.NoError(t, second.cfg.Traces.Store().RequestStop(t.Context(), trace.StopRequest{Ref: ref, Reason: "enough"}))
	second.reconciler.TakeOver(t.Context(), ref)
	require.Equal(t, cancelledOutcome, turnResult(watchedEvents(t, second, ref, 0)).GetOutcome())
}

// A takeover passes the stored answers to the step.
func TestRunner_TakeoverKeepsAnswers(t *testing.T) {
	rig := newRig(t)
	first := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, first, textRequest("s1", "r1"))
	working, _, _ := rig.blockResearch()
	answer := answerRequest("r2", execution.Answer{ID: "1-2-2", Verdict: execution.Approve})
	runUntilStepStarts(t, first, answer, "research")
	receive(t, working)
	ref := trace.Ref{Trace: first.active.FindBySession(session.Ref{Session: "s1"}).TraceID}
	second := rig.newRunner(t, "two")
	second.reconciler.TakeOver(t.Context(), ref)
	require.Equal(t, outcomeCompleted, turnResult(watchedEvents(t, second, ref, 0)).GetOutcome())
	require.Len(t, rig.receivedSteps()[3].GetAnswers(), 1)
	require.EqualValues(t, 3, rig.receivedSteps()[3].GetAttempt())
}

// The memory service may lose writes (guarantee F7). The trace of a turn that is closed then ends, although it knows a
// higher epoch than the turn has.
func TestTakeOver_EndsATraceWhoseEpochWasLost(t *testing.T) {
	r := newRig(t)
	req := textRequest("s1", "r1")
	_, ref, _ := r.loseOwnerDuringResearch(t, req)
	second := r.newRunner(t, "two")
	found, err := second.cfg.Traces.Store().Load(t.Context(), ref)
	require.NoError(t, err)
	found.Turn.TurnEpoch += 7
	_, _, err = second.cfg.Traces.Store().Claim(t.Context(), trace.Claim{Record: found.Record, Turn: found.Turn})
	require.NoError(t, err)
	s, err := r.memory.GetSession(t.Context(), req.Ref)
	require.NoError(t, err)
	_, err = r.memory.FailTurn(t.Context(), memory.Fail{
		Ref: req.Ref, TurnID: s.OpenTurn, Epoch: found.Turn.TurnEpoch - 7, Outcome: session.OutcomeFailed, Failure: failure.New(failure.SystemTimeout, "test", "it took too long"),
	})
	require.NoError(t, err)

	second.reconciler.TakeOver(t.Context(), ref)
	ended, err := second.cfg.Traces.Store().Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, troupev1.TraceState_TRACE_STATE_ENDED, ended.GetState())
}

// unwritableTraces is a trace store that can be read, but does not answer takeovers.
type unwritableTraces struct{ trace.Store }

func (unwritableTraces) Claim(context.Context, trace.Claim) (int64, uint64, error) {
	return 0, 0, failure.New(failure.SystemNetwork, "test", "the store cannot be reached")
}

// An orchestrator that cannot end the trace of a closed turn gives up after a while. Otherwise it could not stop. Another
// one ends the trace.
func TestTakeOver_GivesUpWhileTheStoreCannotBeReached(t *testing.T) {
	r := newRig(t)
	req := textRequest("s1", "r1")
	_, ref, _ := r.loseOwnerDuringResearch(t, req)
	s, err := r.memory.GetSession(t.Context(), req.Ref)
	require.NoError(t, err)
	second, third := r.newRunner(t, "two"), r.newRunner(t, "three")
	found, err := third.cfg.Traces.Store().Load(t.Context(), ref)
	require.NoError(t, err)
	_, err = r.memory.FailTurn(t.Context(), memory.Fail{
		Ref: req.Ref, TurnID: s.OpenTurn, Epoch: found.Turn.TurnEpoch, Outcome: session.OutcomeFailed, Failure: failure.New(failure.SystemTimeout, "test", "it took too long"),
	})
	require.NoError(t, err)

	store := unwritableTraces{second.cfg.Traces.Store()}
	replaceRunner(t, second, func(c *Config) { c.Traces = trace.New(store, zap.NewNop()) })
	gaveUp := make(chan struct{})
	go func() { defer close(gaveUp); second.reconciler.TakeOver(t.Context(), ref) }()
	receive(t, gaveUp)
	third.reconciler.TakeOver(t.Context(), ref)
	ended, err := third.cfg.Traces.Store().Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, troupev1.TraceState_TRACE_STATE_ENDED, ended.GetState())
}
