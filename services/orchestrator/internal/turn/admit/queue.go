package admit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// interruptReason is the reason given to an open turn when a request with Interrupt cancels it.
const interruptReason = "another request of the session interrupted it"

// pollInterval is how often a waiting request asks whether the turn of another orchestrator has ended. It polls
// because other orchestrators send no notification.
const pollInterval = time.Second

// waitForSession waits until its position is the first of the queue and the session is free. It then begins the
// turn of the request.
func (a *Admitter) waitForSession(ctx context.Context, req request.Request, p *active.QueuePosition) (memory.BeginResult, error) {
	within := cmp.Or(req.Timeout, a.Timeout)
	patience := time.NewTimer(within)
	defer patience.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	foundBusy := false // whether the request already had a permit and found its session busy
	stopped := ""      // the trace whose stop was requested from another orchestrator
	for {
		first, asked, changed := a.Active.CheckFirst(req.Ref, p)
		var again <-chan time.Time
		if first {
			begun, err := a.beginOnce(ctx, req, foundBusy)
			asked()
			if !failure.Is(err, failure.SessionBusy) {
				return begun, err
			}
			foundBusy = true
			a.Active.RecordBusy(req.Ref, err)
			switch open := a.Active.FindBySession(req.Ref); {
			case open == nil || open.ID != active.FailureFact(err, "turn_id"):
				again = poll.C // another orchestrator drives the open turn, or the turn has ended meanwhile
				if traceID := active.FailureFact(err, "trace_id"); req.OnBusy == request.Interrupt && traceID != stopped {
					stopped = a.interrupt(ctx, trace.Ref{Tenant: req.Tenant, Trace: traceID})
				}
			case req.OnBusy == request.Interrupt:
				open.Stop(active.NewCancelledError(interruptReason))
			}
		}
		select {
		case <-changed:
		case <-again:
		case <-patience.C:
			return memory.BeginResult{}, a.Active.NewBusyError(req.Ref,
				fmt.Sprintf("the session was busy for the %s that the request may take; try again, or ask for a longer timeout", within))
		case <-a.Drain.CloseStarted():
			return memory.BeginResult{}, active.ErrStopping
		case <-ctx.Done():
			return memory.BeginResult{}, ctx.Err()
		}
	}
}

// interrupt asks the owner of a trace to cancel the trace, and returns the id of the trace. The id is empty when
// the stop request could not be stored.
func (a *Admitter) interrupt(ctx context.Context, ref trace.Ref) string {
	if err := a.Traces.Store().RequestStop(ctx, trace.StopRequest{Ref: ref, Reason: interruptReason}); err != nil {
		a.log.Warn("turn of another orchestrator not interrupted yet", zap.String("trace", ref.Trace), zap.Error(err))
		return ""
	}
	return ref.Trace
}
