package decide

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// earlierTurn holds the stored data about the turn of an earlier trace.
type earlierTurn struct {
	ref   session.Ref
	turn  session.Turn
	steps trace.StepSummary
	// choices are the choices that the new turn must follow: all of them, or for a fork only those before its
	// first step.
	choices map[int]*troupev1.RoutingDecision
}

// loadEarlierTurn loads the turn from the memory service, and from its trace the data that only the trace
// contains.
func (d *Decider) loadEarlierTurn(ctx context.Context, req request.Request, found trace.RunningTrace) (earlierTurn, error) {
	record := found.Record
	p := earlierTurn{ref: session.Ref{Tenant: req.Tenant, Session: record.GetSessionId()}}
	known, _, err := d.LookUpTurn(ctx, memory.Begin{
		Ref: p.ref, User: req.User, TurnID: record.GetTurnId(), TraceID: NewTraceID(), Fingerprint: found.Turn.Fingerprint,
		LeaseTTL: lease.Duration, Window: 1,
	})
	if failure.Is(err, failure.NotFound, failure.SessionDeleted) {
		return p, notContinuedError("what its turn had done is forgotten; say again what you want", record.GetTraceId())
	}
	if err != nil {
		return p, err
	}
	p.turn = known.Turn
	events, err := d.loadEvents(ctx, trace.Ref{Tenant: req.Tenant, Trace: record.GetTraceId()}, record.GetLastSequence())
	p.steps, p.choices = trace.SummarizeSteps(events), trace.ChoicesByNumber(eventsBefore(events, req.Source.Step))
	return p, err
}

// eventsBefore returns the events up to the last event of the steps before the given step (all events for step 0).
// Choices after that are made again.
func eventsBefore(events []*troupev1.Event, step int) []*troupev1.Event {
	if step == 0 {
		return events
	}
	last := 0
	for i, e := range events {
		if of := max(int(e.GetStep()), int(e.GetRoutingDecision().GetNumber())); of > 0 && of < step {
			last = i + 1
		}
	}
	return events[:last]
}

// finishedResults returns the results of the finished steps, by number: the committed steps, and the failed steps
// that did not end the turn. Steps whose calls wait run again.
func (e earlierTurn) finishedResults() []execution.Result {
	all := slices.DeleteFunc(slices.Clone(e.turn.Steps), func(r execution.Result) bool { return len(r.Pending) > 0 })
	for step, r := range e.steps.Finished {
		known := slices.ContainsFunc(all, func(r execution.Result) bool { return r.Step == step })
		if r.GetFailure() != nil && e.steps.Tolerated[step] && !known {
			all = append(all, wire.ResultFromProto(r))
		}
	}
	slices.SortFunc(all, func(a, b execution.Result) int { return cmp.Compare(a.Step, b.Step) })
	return all
}

// resultsBefore returns the results of the steps before the given one. It fails unless all of them have finished.
func (e earlierTurn) resultsBefore(step int) ([]execution.Result, error) {
	finished := e.finishedResults()
	last := 0
	for _, r := range finished {
		last = max(last, r.Step)
	}
	for n := range e.steps.Finished {
		last = max(last, n)
	}
	for n := range e.steps.Running {
		last = max(last, n)
	}
	if step > last {
		return nil, failure.Newf(failure.UserInvalidInput, op,
			"from.step: the trace has no step %d; its last one is %d", step, last).With("fields", "from.step")
	}
	finished = slices.DeleteFunc(finished, func(r execution.Result) bool { return r.Step >= step })
	if len(finished) < step-1 {
		return nil, failure.Newf(failure.UserInvalidInput, op,
			"from.step: not all steps below %d came to an end; name the first that failed, or one before it", step).With("fields", "from.step")
	}
	return finished, nil
}

// eventPageSize is how many events are read at once.
const eventPageSize = 256

// loadEvents loads the events of an ended trace.
func (d *Decider) loadEvents(ctx context.Context, ref trace.Ref, last uint64) (all []*troupev1.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	for after := uint64(0); after < last; after = all[len(all)-1].GetSequence() {
		page, err := d.loadEventPage(ctx, ref, after)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return nil, notContinuedError("its events are no longer kept", ref.Trace)
		}
		all = append(all, page...)
	}
	return all, nil
}

func (d *Decider) loadEventPage(ctx context.Context, ref trace.Ref, after uint64) ([]*troupev1.Event, error) {
	return retry.Do(ctx, func(ctx context.Context) ([]*troupev1.Event, error) {
		return d.Traces.Store().Events(ctx, ref, after, eventPageSize)
	})
}
