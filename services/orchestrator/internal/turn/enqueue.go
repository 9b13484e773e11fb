package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// OnBusy is what becomes of a request while another turn of its session is open (guarantee
// F14).
type OnBusy int

// The zero OnBusy is Reject.
const (
	Reject    OnBusy = iota // it fails with session_busy
	Enqueue                 // it waits, first come first served
	Interrupt               // it has the turn cancelled that is open, and comes before those that wait
)

// interrupted is why a turn ends that a request with Interrupt found.
const interrupted = "another request of the session interrupted it"

// look is how often a request that waits for a turn of somebody else asks whether it is
// over: nobody tells.
const look = time.Second

// enqueue opens the turn of a request, or finds it, when its session is free or as OnBusy
// has it. It waits no longer than the turn may take, and only as long as its caller does.
// Who does not wait does not overtake those who do. Answers interrupt nobody.
func (r *Runner) enqueue(ctx context.Context, req Request) (memory.Begun, error) {
	if len(req.Answers) > 0 && req.OnBusy == Interrupt {
		req.OnBusy = Enqueue // the open turn may be the one that another answer goes on with
	}
	if req.OnBusy == Reject && !r.seats.waiting(req.ref()) {
		return r.begin(ctx, req)
	}
	if r.seats.waiting(req.ref()) {
		if begun, _, err := r.find(ctx, req); begun.Found != "" || err != nil {
			return begun, err
		}
		if req.OnBusy == Reject {
			return memory.Begun{}, r.seats.busy(req.ref(), "other requests wait for the session already; ask with on_busy ENQUEUE to wait with them")
		}
	}
	place, ok := r.seats.take(req.ref(), req.turnID(), req.OnBusy == Interrupt)
	if !ok {
		return memory.Begun{}, r.seats.busy(req.ref(), fmt.Sprintf("%d requests wait for the session already, and no more may; try again later", maxWaiting))
	}
	defer r.seats.leave(req.ref(), place)
	return r.wait(ctx, req, place)
}

// find looks for the turn of a request while others wait: one that is known needs no place
// among them, unless it has to be taken over. Left says that it has.
func (r *Runner) find(ctx context.Context, req Request) (_ memory.Begun, left bool, _ error) {
	a, err := r.admission(ctx, req)
	if err != nil {
		return memory.Begun{}, false, err
	}
	a.begin.KnownOnly = true
	begun, err := r.ask(ctx, a.begin)
	switch {
	case failure.Is(err, failure.NotFound):
		return memory.Begun{}, false, a.nobody
	case err == nil && begun.Found == memory.FoundOpen && begun.LeaseLeft == 0:
		return memory.Begun{}, true, a.nobody
	}
	return begun, false, err
}

// wait begins the turn of a request once its place is the first and the session is free.
func (r *Runner) wait(ctx context.Context, req Request, p *place) (memory.Begun, error) {
	within := cmp.Or(req.Timeout, r.Timeout)
	patience := time.NewTimer(within)
	defer patience.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	stopped := "" // the trace that somebody else was asked to end
	for {
		first, asked, changed := r.seats.first(req.ref(), p)
		var again <-chan time.Time
		if first {
			begun, err := r.begin(ctx, req)
			asked()
			if !failure.Is(err, failure.SessionBusy) {
				return begun, err
			}
			req.passed = true
			r.seats.isBusy(req.ref(), err)
			switch t := r.seats.driven(req.ref()); {
			case t == nil || t.turn.ID != fact(err, "turn_id"):
				again = tick.C // somebody else's, or it has ended since
				if left := fact(err, "trace_id"); req.OnBusy == Interrupt && left != stopped {
					stopped = r.interrupt(ctx, trace.Ref{Tenant: req.Tenant, Trace: left})
				}
			case req.OnBusy == Interrupt:
				t.stopFor(cancelledBy(interrupted))
			}
		}
		select {
		case <-changed:
		case <-again:
		case <-patience.C:
			return memory.Begun{}, r.seats.busy(req.ref(), fmt.Sprintf("the session was busy for the %s that the request may take; try again, or ask for a longer timeout", within))
		case <-r.closing:
			return memory.Begun{}, errStopping
		case <-ctx.Done():
			return memory.Begun{}, ctx.Err()
		}
	}
}

// interrupt has the owner of a trace cancel it, and returns the trace; empty when the wish could
// not be stored.
func (r *Runner) interrupt(ctx context.Context, ref trace.Ref) string {
	if err := r.Traces.Store().Stop(ctx, trace.Stop{Ref: ref, Reason: interrupted}); err != nil {
		r.log.Warn("turn of another orchestrator not interrupted yet", zap.String("trace", ref.Trace), zap.Error(err))
		return ""
	}
	return ref.Trace
}

// fact is one of an error's; empty when there is none.
func fact(err error, key string) string {
	e, ok := errors.AsType[*failure.Error](err)
	if !ok {
		return ""
	}
	return e.Facts[key]
}
