package turn

import (
	"cmp"
	"context"
	"iter"
	"time"

	"go.uber.org/zap"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// disconnectGrace is how long a client that has lost its connection may take to reconnect before its turn is cancelled
// (guarantee F15).
const disconnectGrace = 2 * time.Second

// Watch yields the events of a trace as Traces.Watch does. If cancelOnDisconnect is set and the client goes away before
// the end of the turn, the turn is cancelled after disconnectGrace, unless such a client reads its events by then, at
// any orchestrator. The store counts these clients. If the count is lost or cannot be read, the turn continues.
func (r *Runner) Watch(ctx context.Context, ref trace.Ref, after uint64, cancelOnDisconnect bool) iter.Seq2[*troupev1.Event, error] {
	events := r.cfg.Traces.Watch(ctx, ref, after)
	if !cancelOnDisconnect {
		return events
	}
	return func(yield func(*troupev1.Event, error) bool) {
		if _, err := r.cfg.Traces.Store().AddFollowers(ctx, ref, 1); err != nil {
			yield(nil, err)
			return
		}
		followed, broken := false, false // followed to the end; broken by the store or its owner
		defer func() {                   // also when the consumer panics
			if !followed {
				r.followerLeft(ctx, ref, !broken)
			}
		}()
		for e, err := range events {
			followed, broken = e.GetTurnResult() != nil, err != nil && ctx.Err() == nil
			if !yield(e, err) {
				return
			}
		}
	}
}

// followerLeft counts one follower less. If mayCancel is set, it cancels the turn unless a client reads its events after
// disconnectGrace. It does not wait.
func (r *Runner) followerLeft(ctx context.Context, ref trace.Ref, mayCancel bool) {
	r.goCancel(ctx, func(ctx context.Context) error {
		n, err := r.cfg.Traces.Store().AddFollowers(ctx, ref, -1)
		if err != nil || n != 0 || !mayCancel {
			return err
		}
		return r.cancelUnlessFollowed(ctx, ref)
	})
}

// requesterLeft cancels the turn of a request whose client went away before it got an event, unless a client reads its
// events after disconnectGrace. It does not wait. If the turn has not begun yet, admission calls cancelSoon when it has.
func (r *Runner) requesterLeft(ctx context.Context, req request.Request) {
	if begun := r.active.FindBySession(req.Ref); begun != nil && begun.ID == req.TurnID() {
		r.cancelSoon(ctx, trace.Ref{Tenant: req.Tenant, Trace: begun.TraceID})
	}
}

// cancelSoon cancels a turn unless a client reads its events after disconnectGrace. It does not wait.
func (r *Runner) cancelSoon(ctx context.Context, ref trace.Ref) {
	r.goCancel(ctx, func(ctx context.Context) error { return r.cancelUnlessFollowed(ctx, ref) })
}

// goCancel runs cancel in the background. It does nothing while the orchestrator stops, because clients
// then continue to read at another one.
func (r *Runner) goCancel(ctx context.Context, cancel func(context.Context) error) {
	if !r.drain.Enter() {
		return
	}
	defer r.drain.Leave()
	r.drain.Go(func() {
		if err := cancel(context.WithoutCancel(ctx)); err != nil {
			r.cfg.Telemetry.Log.Warn("a turn whose client has gone was not cancelled", zap.Error(err))
		}
	})
}

// cancelUnlessFollowed waits for disconnectGrace, and then cancels the turn unless a client reads its events.
func (r *Runner) cancelUnlessFollowed(ctx context.Context, ref trace.Ref) error {
	grace := time.NewTimer(cmp.Or(r.cfg.disconnectGrace, disconnectGrace))
	defer grace.Stop()
	select {
	case <-grace.C:
	case <-r.drain.CloseStarted():
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	if n, err := r.cfg.Traces.Store().AddFollowers(ctx, ref, 0); err != nil || n != 0 {
		return err
	}
	return r.stopTrace(ctx, ref, "its client has gone")
}
