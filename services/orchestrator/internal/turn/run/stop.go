package run

import (
	"context"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/conclude"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
)

// chooseEnding decides how a turn ends after its work has ended. If the work was cancelled, the turn's error is
// the reason for that and not the error that resulted.
func (t *Turn) chooseEnding(work, _ context.Context) (state, error) {
	if t.unwatch != nil {
		t.unwatch()
	}
	if t.err != nil && work.Err() != nil {
		t.err = context.Cause(work)
	}
	if t.err != nil && isHandedOver(work) {
		return handingOver, nil
	}
	t.err = t.asPartialFailure(work, t.err)
	return closing, nil
}

// handOver releases the turn, so that another orchestrator takes it over at once. If the turn is already closed,
// the trace still gets its last event here.
func (t *Turn) handOver(_, ctx context.Context) (state, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.BeginTimeout)
	defer cancel()
	err := t.lease.Release(ctx)
	if failure.Is(err, failure.TurnNotOpen, failure.SessionDeleted) {
		return closing, nil
	}
	t.driver.Publisher.Abandon(ctx, t.events)
	if failure.Is(err, failure.Fenced, failure.NotFound) {
		return ended, nil // another orchestrator has it already
	}
	if free := t.driver.Publisher.ReleaseLease(ctx, t.events); err == nil {
		err = free
	}
	if err != nil {
		t.events.Logger().Warn("turn not handed over at once", zap.String("trace", t.begun.Turn.Trace), zap.Error(err))
	}
	return ended, nil
}

// closeTurn closes the turn and its trace, with or without an answer.
func (t *Turn) closeTurn(work, ctx context.Context) (state, error) {
	b := t.begun
	outcome := conclude.Outcome{
		Results: t.conversation.Results, History: t.conversation.History, Err: t.err, CloseAs: session.OutcomeFailed,
		Waits: t.cursor != nil && len(t.cursor.WaitingBranches()) > 0,
	}
	if failure.Is(context.Cause(work), failure.UserCancelled) || failure.Is(t.err, failure.UserCancelled) {
		outcome.CloseAs = session.OutcomeCancelled
	}
	broken := t.driver.Closer.Close(ctx, conclude.Turn{
		Request: b.Request, Turn: b.Turn, Target: b.Target, EntryAgent: b.Flow.Steps[b.Flow.Entry].Agent, Began: b.Began,
		Lease: t.lease, Permit: b.Permit, Events: t.events,
		LengthWarning: func(closed session.Turn) (string, string) { return b.Growth.Warning(b.Request.Ref, closed) },
		Ended:         func(closed session.Turn) { t.driver.Compactor.Enqueue(b.Growth.Session(b.Request.Ref, closed)) },
	}, outcome)
	if broken != nil {
		t.driver.Telemetry.Panics.Record(ctx, broken)
		t.events.Logger().Error("turn not closed", zap.String("trace", b.Turn.Trace), zap.Error(broken))
		t.driver.Publisher.Abandon(ctx, t.events)
	}
	t.steps.EndDescendants(ctx, t.err)
	return ended, nil
}
