package turn

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Bounds of adoption.
const (
	adoptions = 16 // turns that are being taken over at once
	maxOwners = 10 // orchestrators that may lose one turn: it must not take down all of them
)

// Tend vouches for the traces of this runner until ctx ends, which must not be before Close
// has returned, and goes on with traces whose orchestrator is gone (guarantee F4). It returns
// when nothing of it runs any more, but for the turns that it set going.
func (r *Runner) Tend(ctx context.Context) {
	var adopting sync.WaitGroup
	defer adopting.Wait()
	slots := make(chan struct{}, adoptions)
	pause := time.NewTimer(jittered(trace.Interval))
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		take := cap(slots) - len(slots)
		if r.isClosed() || !r.Roster.IsFilled() {
			take = 0 // it cannot tell who could work
		}
		orphans := r.beat(ctx, take)
		for _, ref := range orphans {
			slots <- struct{}{}
			adopting.Go(func() {
				defer func() { <-slots }()
				r.adopt(ctx, ref)
			})
		}
		next := trace.Interval
		if take > 0 && len(orphans) == take {
			next /= 20 // there may be more
		}
		pause.Reset(jittered(next))
	}
}

// jittered is a time about as long, so that replicas do not ask all at once.
func jittered(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2) //nolint:gosec // it spreads load, and hides nothing
}

// beat vouches for the traces of this runner, ends those that somebody wants ended, and
// returns orphans to adopt.
func (r *Runner) beat(ctx context.Context, take int) []trace.Ref {
	ctx, cancel := context.WithTimeout(ctx, trace.Vouch/2)
	defer cancel()
	orphans, stops, err := r.Traces.Beat(ctx, take)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("not vouched for the traces that run here; another orchestrator may take them", zap.Error(err))
	}
	for _, stop := range stops {
		if t := r.seats.traced(stop.Ref); t != nil {
			t.stopFor(cancelledBy(stop.Reason))
		}
	}
	return orphans
}

func (r *Runner) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// adopt goes on with a trace for which nobody vouches. When it fails, the trace comes up again
// once nobody vouches for it, here or elsewhere.
func (r *Runner) adopt(ctx context.Context, ref trace.Ref) {
	if !r.enter() {
		return
	}
	defer r.running.Done()
	if r.seats.traced(ref) != nil {
		return
	}
	took, err := r.takeUp(ctx, ref)
	switch {
	case err != nil:
		r.Telemetry.Panics.Note(ctx, err)
		r.log.Warn("orphaned trace not adopted", zap.String("trace", ref.Trace), zap.Error(err))
	case took:
		r.adopted.Add(ctx, 1)
	}
}

// takeUp takes the turn of a trace over, and sets it going. It is false when there is nothing
// to do, or somebody else was faster.
//
// The memory service decides: the lease of the owner that is gone is ended under the epoch
// that it had, which fails when another has the turn by now, and whoever begins the turn then
// gets a higher one. From there on the owner before can write nothing, whether or not it is
// gone; the trace goes with the turn.
//
// A trace that panics here would take down each orchestrator that finds it: that is an error
// too, and holds nothing.
func (r *Runner) takeUp(ctx context.Context, ref trace.Ref) (took bool, err error) {
	defer panics.Recover("turn.adopt", &err)
	found, err := r.Traces.Store().Load(ctx, ref)
	if failure.Is(err, failure.NotFound) || err == nil && found.Record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED {
		r.Traces.Dismiss(ref)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() {
		if took && err == nil {
			r.log.Info("orphaned trace adopted", zap.String("trace", ref.Trace), zap.String("root_trace_id", found.Record.GetRootTraceId()))
		}
	}()
	a, req := r.orphan(ref, found)
	within, cancel := context.WithTimeout(ctx, trace.Vouch) // for so long nobody else tries
	defer cancel()
	known, err := r.known(within, a.begin)
	switch {
	case failure.Is(err, failure.NotFound, failure.SessionDeleted):
		return true, r.bury(ctx, req, found, err)
	case err != nil:
		return false, err
	case known.Found == memory.FoundClosed:
		return true, r.conclude(ctx, req, a.begin.Fingerprint, known.Turn)
	case a.nobody != nil && found.Left > 0:
		return false, a.nobody // another may know who can go on with it
	}
	begun, err := r.wrest(within, a.begin, known)
	if err != nil || begun.Found != memory.FoundBegun {
		return false, err
	}
	req.Files = attachments(begun)
	a.redo = r.failedSteps(within, req)
	pass, driven := r.Gate.Force(req.Tenant), false // nobody who was admitted once waits again
	defer func() {
		if !driven {
			pass.End(false)
		}
	}()
	t := r.driver(req, a, begun, pass)
	defer func() {
		if driven {
			return
		}
		if t.events != nil {
			r.Traces.Abandon(ctx, t.events)
		}
		r.seats.ended(t)
	}()
	t.began, t.lacking = found.Record.GetStarted().AsTime(), found.Terms.Credentials
	if found.Record.GetOwnerEpoch() >= maxOwners {
		t.hopeless = failure.Newf(failure.AttemptsExhausted, "turn", "%d orchestrators went away while they drove the turn", found.Record.GetOwnerEpoch())
	}
	if found.Stopped {
		t.stopFor(cancelledBy(found.Reason))
	}
	ctx = context.WithoutCancel(ctx)
	if err := t.open(ctx); err != nil {
		return false, err
	}
	driven = true
	r.running.Go(func() { t.run(ctx, found.Terms.Timeout, found.Left) })
	return true, nil
}

// orphan is what is asked for in the name of an owner that is gone.
func (r *Runner) orphan(ref trace.Ref, found trace.Running) (admission, Request) {
	record := found.Record
	req := Request{
		Tenant: ref.Tenant, Session: record.GetSessionId(), User: found.Terms.User, RequestID: record.GetRequestId(),
		Text: record.GetText(), Target: record.GetTarget(), Parent: record.GetParent(), Above: found.Terms.Above, Labels: labelsOf(found),
		From: FromProto(record.GetForkedFrom()),
	}
	a := r.directed(memory.Begin{
		Ref: req.ref(), User: req.User, TurnID: record.GetTurnId(), TraceID: traceID(), Fingerprint: found.Terms.Fingerprint, Lease: lease,
	}, record.GetTarget())
	if a.nobody != nil {
		a.flow, a.target = workflow.Single(record.GetTarget()), record.GetTarget()
	}
	return a, req
}

// known is the turn as it stands.
func (r *Runner) known(ctx context.Context, begin memory.Begin) (memory.Begun, error) {
	begin.KnownOnly = true
	return r.ask(ctx, begin)
}

// wrest begins a turn that somebody else may hold a lease of, unless it changes hands
// meanwhile.
func (r *Runner) wrest(ctx context.Context, begin memory.Begin, known memory.Begun) (memory.Begun, error) {
	if known.LeaseLeft > 0 {
		_, err := retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.Memory.ReleaseTurn(ctx, memory.Hold{Ref: begin.Ref, TurnID: begin.TurnID, Epoch: known.Turn.Epoch})
		})
		if failure.Is(err, failure.Fenced, failure.TurnNotOpen) {
			return memory.Begun{}, nil
		}
		if err != nil {
			return memory.Begun{}, err
		}
	}
	return r.ask(ctx, begin)
}

// bury ends the trace of a turn that is no more.
func (r *Runner) bury(ctx context.Context, req Request, found trace.Running, why error) error {
	record := found.Record
	gone := session.Turn{
		ID: record.GetTurnId(), Trace: record.GetTraceId(), Number: int(record.GetTurn()), Epoch: gravest,
		Outcome: session.OutcomeFailed, Failure: grpcfailure.FromProto(grpcfailure.ToProto(why)),
	}
	return r.conclude(ctx, req, found.Terms.Fingerprint, gone)
}

// gravest is above every epoch: nobody drives a turn that is no more.
const gravest = 1<<53 - 1
