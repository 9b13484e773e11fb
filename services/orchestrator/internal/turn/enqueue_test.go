package turn

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

const cancelledOutcome = troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED

// requestWithBusyPolicy returns a request in session s1 with the given OnBusy.
func requestWithBusyPolicy(requestID string, onBusy request.BusyPolicy) request.Request {
	req := textRequest("s1", requestID)
	req.OnBusy = onBusy
	return req
}

// awaitQueue waits until the queue of session s1 has the given length.
func awaitQueue(t *testing.T, r *Runner, length int) {
	t.Helper()
	require.Eventually(t, func() bool { return r.active.QueueLength(session.Ref{Session: "s1"}) == length }, patience, time.Millisecond)
}

// awaitIdle waits until a runner has no active session. A runner still works for a moment after the last event of
// a turn.
func awaitIdle(t *testing.T, r *Runner) {
	t.Helper()
	require.Eventually(t, func() bool { return r.active.SessionCount() == 0 }, patience, time.Millisecond)
}

// rejectionError returns the error with which a request is rejected.
func rejectionError(t *testing.T, r *Runner, req request.Request) error {
	t.Helper()
	for e, err := range r.Orchestrate(t.Context(), req) {
		require.Nil(t, e)
		require.Error(t, err)
		return err
	}
	return nil
}

// Queued requests are served in the order of arrival (guarantee F14).
func TestRunner_EnqueueKeepsTheOrderOfArrival(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	working, _, release := rig.blockResearch()
	first := startRequest(t, runner, textRequest("s1", "r0"))
	receive(t, working)
	var waiting []<-chan []*troupev1.Event
	for n := range active.MaxWaiting {
		waiting = append(waiting, startRequest(t, runner, requestWithBusyPolicy(fmt.Sprint("r", n+1), request.Enqueue)))
		awaitQueue(t, runner, n+1)
	}
	again := startRequest(t, runner, requestWithBusyPolicy("r3", request.Enqueue)) // a repeated request shares its position

	require.Eventually(t, func() bool {
		return active.FailureFact(rejectionError(t, runner, requestWithBusyPolicy("more", request.Enqueue)), "trace_id") != ""
	}, patience, time.Millisecond)
	err := rejectionError(t, runner, requestWithBusyPolicy("more", request.Enqueue))
	require.Equal(t, failure.SessionBusy, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "8 requests wait for the session already")
	err = rejectionError(t, runner, requestWithBusyPolicy("impatient", request.Reject))
	require.Equal(t, failure.SessionBusy, failure.ModeOf(err), "%v", err)
	require.Equal(t, session.TurnID(session.Ref{Session: "s1"}, "r0"), active.FailureFact(err, "turn_id"))
	known := startRequest(t, runner, requestWithBusyPolicy("r0", request.Enqueue)) // a request whose turn runs needs no position

	release()
	require.EqualValues(t, 1, receive(t, first)[0].GetTurn())
	require.EqualValues(t, 1, receive(t, known)[0].GetTurn())
	for n, done := range waiting {
		events := receive(t, done)
		require.EqualValues(t, n+2, events[0].GetTurn())
		require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	}
	require.EqualValues(t, 4, receive(t, again)[0].GetTurn())
	require.Eventually(t, func() bool { return runner.active.QueueLength(session.Ref{Session: "s1"}) == 0 }, patience, time.Millisecond)
}

func TestRunner_EnqueueEndsOnTimeoutCancelAndClose(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	working, _, release := rig.blockResearch()
	defer release()
	left0 := runUntilStepStarts(t, runner, textRequest("s1", "r0"), "research")
	receive(t, working)

	hasty := requestWithBusyPolicy("hasty", request.Enqueue)
	hasty.Timeout = 50 * time.Millisecond
	err := rejectionError(t, runner, hasty)
	require.Equal(t, failure.SessionBusy, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "the session was busy for the 50ms that the request may take")
	require.NotEmpty(t, active.FailureFact(err, "trace_id"))

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		for _, err := range runner.Orchestrate(ctx, requestWithBusyPolicy("gone", request.Enqueue)) {
			left <- err
		}
	}()
	awaitQueue(t, runner, 1)
	leave()
	require.ErrorIs(t, receive(t, left), context.Canceled)
	awaitQueue(t, runner, 0)

	for n, id := range []string{"next", "late"} { // the next may begin just before the runner closes
		go func() {
			for _, err := range runner.Orchestrate(t.Context(), requestWithBusyPolicy(id, request.Enqueue)) {
				if id == "late" {
					left <- err
				}
			}
		}()
		awaitQueue(t, runner, n+1)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	runner.Close(ended)
	require.ErrorContains(t, receive(t, left), "this orchestrator is stopping")
	for _, id := range []string{"hasty", "gone", "late"} {
		known := rig.newBegin(textRequest("s1", id))
		known.LookupOnly = true
		_, err := rig.memory.BeginTurn(t.Context(), known)
		require.Equal(t, failure.NotFound, failure.ModeOf(err), "%s never began: %v", id, err)
	}
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, rig.newRunner(t, "two"), textRequest("s1", "r0"))).GetOutcome(), "it was handed over")
	require.NoError(t, receive(t, left0))
}

// An interrupt cancels the open turn. The interrupting request runs next, before the queued ones.
func TestRunner_InterruptCancelsTheOpenTurn(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	working, cancelled, release := rig.blockResearch()
	defer release()
	first := startRequest(t, runner, textRequest("s1", "r0"))
	receive(t, working)
	patient := startRequest(t, runner, requestWithBusyPolicy("patient", request.Enqueue))
	awaitQueue(t, runner, 1)

	events := runToEnd(t, runner, requestWithBusyPolicy("urgent", request.Interrupt))
	require.EqualValues(t, 2, events[0].GetTurn())
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	events = receive(t, first)
	require.Equal(t, cancelledOutcome, turnResult(events).GetOutcome())
	require.Equal(t, troupev1.Stage_STAGE_CANCELLED, events[len(events)-1].GetStage())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_USER_CANCELLED, turnResult(events).GetFailure().GetMode())
	require.Contains(t, turnResult(events).GetFailure().GetMessage(), "another request of the session interrupted it")
	receive(t, cancelled)
	require.EqualValues(t, 3, receive(t, patient)[0].GetTurn())
}

// staleBusyMemory is a memory service that calls a function after its first session_busy reply, before the caller
// receives the reply.
type staleBusyMemory struct {
	admit.Memory
	meanwhile func()
}

func (s *staleBusyMemory) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := s.Memory.BeginTurn(ctx, b)
	if failure.Is(err, failure.SessionBusy) && s.meanwhile != nil {
		meanwhile := s.meanwhile
		s.meanwhile = nil
		meanwhile()
	}
	return begun, err
}

// An interrupt cancels only the turn that made the session busy. It does not cancel a later turn, which may be its
// own.
func TestRunner_InterruptCancelsNoOtherTurn(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	stale := &staleBusyMemory{Memory: runner.cfg.Memory}
	replaceRunner(t, runner, func(c *Config) { c.Memory = stale })
	working, _, release := rig.blockResearch()
	first := startRequest(t, runner, textRequest("s1", "r0"))
	receive(t, working)
	urgent := requestWithBusyPolicy("urgent", request.Interrupt)
	ours, _, finish := rig.blockResearch()
	stale.meanwhile = func() {
		release()
		<-runner.active.FindBySession(urgent.Ref).Done()
		_, err := runner.admit.Begin(context.WithoutCancel(t.Context()), urgent, runner.cfg.Permits.ForceAdmit("")) // of another caller
		require.NoError(t, err)
	}
	done := startRequest(t, runner, urgent)
	require.Equal(t, outcomeCompleted, turnResult(receive(t, first)).GetOutcome())
	receive(t, ours)
	require.Never(t, func() bool { return len(runner.active.FindBySession(urgent.Ref).StopRequests()) > 0 }, 50*time.Millisecond, time.Millisecond)
	finish()
	require.Equal(t, outcomeCompleted, turnResult(receive(t, done)).GetOutcome())
}

// A queued request moves to the front when it is sent again with Interrupt.
func TestRunner_InterruptMovesAQueuedRequestToTheFront(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	working, _, release := rig.blockResearch()
	defer release()
	first := startRequest(t, runner, textRequest("s1", "r0"))
	receive(t, working)
	var waiting []<-chan []*troupev1.Event
	for n, id := range []string{"patient", "urgent"} {
		waiting = append(waiting, startRequest(t, runner, requestWithBusyPolicy(id, request.Enqueue)))
		awaitQueue(t, runner, n+1)
	}
	require.EqualValues(t, 2, runToEnd(t, runner, requestWithBusyPolicy("urgent", request.Interrupt))[0].GetTurn())
	require.Equal(t, cancelledOutcome, turnResult(receive(t, first)).GetOutcome())
	require.EqualValues(t, 3, receive(t, waiting[0])[0].GetTurn())
	require.EqualValues(t, 2, receive(t, waiting[1])[0].GetTurn())
}

// An owner that does not react to an interrupt completes its turn. The interrupting request waits for that.
func TestRunner_InterruptWaitsForAnUnresponsiveOwner(t *testing.T) {
	rig := newRig(t)
	first, second := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	working, _, release := rig.blockResearch()
	done := startRequest(t, first, textRequest("s1", "r0"))
	receive(t, working)
	urgent := startRequest(t, second, requestWithBusyPolicy("urgent", request.Interrupt))
	awaitQueue(t, second, 1)
	release()
	require.Equal(t, outcomeCompleted, turnResult(receive(t, done)).GetOutcome())
	require.EqualValues(t, 2, receive(t, urgent)[0].GetTurn())
}

// A queued request replaces the turn of a lost orchestrator once its lease expires.
func TestRunner_EnqueueReplacesAnAbandonedTurn(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	left := textRequest("s1", "r0")
	_, err := rig.memory.BeginTurn(t.Context(), rig.newBegin(left))
	require.NoError(t, err)
	next := startRequest(t, runner, requestWithBusyPolicy("r1", request.Enqueue))
	awaitQueue(t, runner, 1)
	rig.expireLeases()
	require.EqualValues(t, 2, receive(t, next)[0].GetTurn())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_SYSTEM_TIMEOUT, turnResult(runToEnd(t, runner, left)).GetFailure().GetMode())
}

// Req: OC-5
func TestRunner_CancelEndsTheTurnOfASession(t *testing.T) {
	rig := newRig(t)
	rig.routeTimeout = patience
	runner := rig.newRunner(t, "one")
	require.NoError(t, runner.Cancel(t.Context(), session.Ref{Session: "s1"}), "there is none")
	cancel := func(first <-chan []*troupev1.Event) {
		require.NoError(t, runner.Cancel(t.Context(), session.Ref{Session: "s1"}))
		require.Equal(t, session.Ready, rig.state(t, "s1"), "it has ended when Cancel returns")
		events := receive(t, first)
		require.Equal(t, cancelledOutcome, turnResult(events).GetOutcome())
		require.Equal(t, troupev1.Stage_STAGE_CANCELLED, events[len(events)-1].GetStage())
	}
	working, cancelled, release := rig.blockResearch()
	defer release()
	first := startRequest(t, runner, textRequest("s1", "r0"))
	receive(t, working)
	cancel(first)
	receive(t, cancelled) // the worker was notified

	key := registry.Key{Agent: "research", ID: "research-1"}
	rig.cache.Apply(registry.Update{Delete: &key})
	first = startRequest(t, runner, textRequest("s1", "r1")) // the step waits, because no instance is registered
	require.Eventually(t, func() bool { return runner.active.FindBySession(session.Ref{Session: "s1"}) != nil }, patience, time.Millisecond)
	cancel(first)

	rig.addInstances("research", 1)
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, textRequest("s1", "r2"))).GetOutcome())
	awaitIdle(t, runner)
}

// A session belongs to one user. Requests of other users are rejected.
func TestRunner_SessionBelongsToOneUser(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	mine := textRequest("s1", "r0")
	mine.User = "ann"
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, mine)).GetOutcome())
	theirs := textRequest("s1", "r1")
	theirs.User = "bob"
	require.Equal(t, failure.NotFound, failure.ModeOf(rejectionError(t, runner, theirs)))
	s, err := rig.memory.GetSession(t.Context(), session.Ref{Session: "s1"})
	require.NoError(t, err)
	require.Equal(t, "ann", s.User)
}
