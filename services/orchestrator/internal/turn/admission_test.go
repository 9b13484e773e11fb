package turn

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	gate "github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// newLimitedRig returns a rig whose runners have one permit and room for one queued request.
func newLimitedRig(t *testing.T, queueTime time.Duration) *rig {
	t.Helper()
	rig := newRig(t)
	rig.limits = gate.Config{MaxTurns: func() int { return 1 }, MaxQueueTime: queueTime}
	return rig
}

// isTurnStored reports whether the memory service has the turn of a request.
func (r *rig) isTurnStored(t *testing.T, req request.Request) bool {
	t.Helper()
	_, err := r.memory.BeginTurn(t.Context(), memory.Begin{Ref: req.Ref, TurnID: req.TurnID(), Fingerprint: req.Fingerprint(), LookupOnly: true})
	require.True(t, err == nil || failure.Is(err, failure.NotFound), "%v", err)
	return err == nil
}

// awaitPermitQueue waits until a request is queued for a permit.
func awaitPermitQueue(t *testing.T, r *Runner) {
	t.Helper()
	require.Eventually(t, func() bool { return r.cfg.Permits.Waiting() == 1 }, patience, time.Millisecond)
}

// A request that continues or attaches to an existing turn never waits behind new turns.
func TestRunner_OnlyNewTurnsWaitForAPermit(t *testing.T) {
	rig := newLimitedRig(t, 0)
	runner, other := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	ended := runToEnd(t, runner, textRequest("s0", "r0"))
	awaitIdle(t, runner)
	rig.makeResearchWait(approvalCall())
	require.Equal(t, inputRequired, turnResult(runToEnd(t, runner, textRequest("s1", "r1"))).GetOutcome())
	awaitIdle(t, runner)

	working, _, release := rig.blockResearch()
	running := startRequest(t, runner, textRequest("s2", "r2"))
	receive(t, working)
	full := other.cfg.Permits.ForceAdmit("")
	defer full.Release(false)

	fresh := textRequest("s3", "r3")
	err := rejectionError(t, runner, fresh)
	require.Equal(t, failure.Overloaded, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "no more than 1 turns may run here at once")
	require.False(t, rig.isTurnStored(t, fresh))

	for _, r := range []*Runner{runner, other} {
		require.Equal(t, eventSummary(durableEvents(ended)), eventSummary(runToEnd(t, r, textRequest("s0", "r0"))), "an ended turn is replayed")
	}
	attached, elsewhere := startRequest(t, runner, textRequest("s2", "r2")), startRequest(t, other, textRequest("s2", "r2"))
	require.Equal(t, failure.SessionBusy, failure.ModeOf(rejectionError(t, runner, textRequest("s2", "r4"))), "its session is busy, and waiting would not help")
	rig.setScript("research", nil) // the retried step must not block again
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, answerRequest("r5", approvalAnswer("1-2-2")))).GetOutcome())
	for n, r := range []*Runner{runner, other} {
		below := textRequest(fmt.Sprint("s5-", n), "r6")
		below.ParentTrace = runner.active.FindBySession(textRequest("s2", "r2").Ref).TraceID
		require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, r, below)).GetOutcome(), "the turn above waits for it")
	}
	orphaned := textRequest("s6", "r7")
	orphaned.ParentTrace = ended[0].GetTraceId()
	require.Equal(t, failure.Overloaded, failure.ModeOf(rejectionError(t, runner, orphaned)), "the parent has ended")

	release()
	for _, events := range []<-chan []*troupev1.Event{running, attached, elsewhere} {
		require.Equal(t, outcomeCompleted, turnResult(receive(t, events)).GetOutcome())
	}
	awaitIdle(t, runner)
	require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, runner, fresh)).GetOutcome())
}

// A takeover needs no permit, because the turn was admitted once already.
func TestRunner_TakeoverNeedsNoPermit(t *testing.T) {
	t.Parallel()
	t.Run("by its request", func(t *testing.T) {
		rig := newLimitedRig(t, 0)
		_, _, left := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
		rig.expireLeases()
		second := rig.newRunner(t, "two")
		defer second.cfg.Permits.ForceAdmit("").Release(false)
		require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, second, textRequest("s1", "r1"))).GetOutcome())
		require.NoError(t, receive(t, left))
	})
	t.Run("by another orchestrator", func(t *testing.T) {
		rig := newLimitedRig(t, 0)
		_, ref, left := rig.loseOwnerDuringResearch(t, textRequest("s1", "r1"))
		second := rig.newRunner(t, "two")
		defer second.cfg.Permits.ForceAdmit("").Release(false)
		second.reconciler.TakeOver(t.Context(), ref)
		require.Equal(t, outcomeCompleted, turnResult(watchedEvents(t, second, ref, 0)).GetOutcome())
		require.NoError(t, receive(t, left))
	})
}

// Callers of the same request share one place in the queue. The place becomes free when the last of them leaves.
func TestRunner_CancelledCallerLeavesTheQueue(t *testing.T) {
	rig := newLimitedRig(t, patience)
	runner := rig.newRunner(t, "one")
	working, _, release := rig.blockResearch()
	first := startRequest(t, runner, textRequest("s1", "r1"))
	receive(t, working)

	waiting := textRequest("s2", "r2")
	var leave [2]context.CancelFunc
	left := make(chan error, 2)
	for n := range leave {
		var ctx context.Context
		ctx, leave[n] = context.WithCancel(t.Context())
		go func() {
			for _, err := range runner.Orchestrate(ctx, waiting) {
				left <- err
			}
		}()
	}
	callers := func(n int) {
		require.Eventually(t, func() bool { return runner.admit.CallerCount(waiting) == n }, patience, time.Millisecond)
	}
	callers(2)
	awaitPermitQueue(t, runner)
	require.Equal(t, failure.Overloaded, failure.ModeOf(rejectionError(t, runner, textRequest("s3", "r3"))), "there is no other place")
	leave[0]()
	require.ErrorIs(t, receive(t, left), context.Canceled)
	callers(1)
	require.Equal(t, 1, runner.cfg.Permits.Waiting())
	require.Equal(t, failure.Overloaded, failure.ModeOf(rejectionError(t, runner, textRequest("s3", "r3"))), "one request is still queued")
	leave[1]()
	require.ErrorIs(t, receive(t, left), context.Canceled)
	require.Eventually(t, func() bool { return runner.cfg.Permits.Waiting() == 0 }, patience, time.Millisecond)

	next := startRequest(t, runner, textRequest("s4", "r4"))
	release()
	require.Equal(t, outcomeCompleted, turnResult(receive(t, first)).GetOutcome())
	require.Equal(t, outcomeCompleted, turnResult(receive(t, next)).GetOutcome())
	require.False(t, rig.isTurnStored(t, waiting))
	_, err := rig.memory.GetSession(t.Context(), session.Ref{Session: "s2"})
	require.Equal(t, failure.NotFound, failure.ModeOf(err), "%v", err)
}

// A request that is queued when the orchestrator stops is rejected, so that its caller can try another replica.
func TestRunner_CloseRejectsQueuedRequests(t *testing.T) {
	rig := newLimitedRig(t, patience)
	runner := rig.newRunner(t, "one")
	full := runner.cfg.Permits.ForceAdmit("")
	refused := make(chan error, 1)
	go func() { refused <- rejectionError(t, runner, textRequest("s1", "r1")) }()
	awaitPermitQueue(t, runner)
	runner.Close(t.Context())
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(receive(t, refused)))
	full.Release(false)
}

// A request can interrupt a turn on any replica, even when no permit is free.
func TestRunner_InterruptReachesAnotherOwnerWithoutAPermit(t *testing.T) {
	rig := newLimitedRig(t, 0)
	owner, other := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	runMaintenance(t, owner)
	working, cancelled, release := rig.blockResearch()
	defer release()
	done := startRequest(t, owner, textRequest("s1", "r1"))
	receive(t, working)
	full := other.cfg.Permits.ForceAdmit("")
	defer full.Release(false)
	next := startRequest(t, other, requestWithBusyPolicy("r2", request.Interrupt))
	require.Equal(t, cancelledOutcome, turnResult(receive(t, done)).GetOutcome())
	receive(t, cancelled)
	release()
	events := receive(t, next)
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
}

// A turn may have only a limited number of concurrent children, whichever replica runs it. A further child is
// rejected, even when the worker of the parent or another caller that names the parent requests it (guarantee
// S17). A repeated request attaches to its running child, and a finished child makes room for another.
func TestRunner_LimitsConcurrentChildTurns(t *testing.T) {
	rig := newLimitedRig(t, 0)
	rig.addInstances("research", 4)
	owner, other := rig.newRunner(t, "one"), rig.newRunner(t, "two")
	defer other.cfg.Permits.ForceAdmit("").Release(false) // as it is of the owner, by the turn above
	const width = 2
	above := textRequest("s0", "r0")
	limits := budget.Unbounded()
	limits.FanOut = width
	above.Budget = &limits
	working, _, end := rig.blockResearch()
	defer end()
	done := startRequest(t, owner, above)
	receive(t, working)

	for _, r := range []*Runner{owner, other} {
		var release []func()
		var running []<-chan []*troupev1.Event
		below := func(n int) request.Request {
			req := textRequest(fmt.Sprint("s-", r.cfg.Owner, n), "r1")
			req.ParentTrace = owner.active.FindBySession(above.Ref).TraceID
			return req
		}
		for n := range width {
			working, _, let := rig.blockResearch()
			running, release = append(running, startRequest(t, r, below(n))), append(release, let)
			receive(t, working)
		}
		for n := width; n < 5; n++ {
			err := rejectionError(t, r, below(n))
			require.Equal(t, failure.Overloaded, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, "no more than 2 child turns of trace")
			require.False(t, rig.isTurnStored(t, below(n)))
		}
		again := startRequest(t, r, below(0))
		release[0]()
		require.Equal(t, outcomeCompleted, turnResult(receive(t, running[0])).GetOutcome())
		require.Equal(t, outcomeCompleted, turnResult(receive(t, again)).GetOutcome())
		require.Equal(t, outcomeCompleted, turnResult(runToEnd(t, r, below(width))).GetOutcome(), "there is room for another")
		release[1]()
		require.Equal(t, outcomeCompleted, turnResult(receive(t, running[1])).GetOutcome())
	}
	end()
	require.Equal(t, outcomeCompleted, turnResult(receive(t, done)).GetOutcome())
}
