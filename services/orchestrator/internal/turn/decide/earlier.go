package decide

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
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

// Locate returns a request with its session. A request that resumes a trace belongs to the session of that.
func (d *Decider) Locate(ctx context.Context, req request.Request) (request.Request, error) {
	if !req.From.IsResume() {
		return req, nil
	}
	found, err := d.earlier(ctx, req)
	if err != nil {
		return req, err
	}
	of := found.Record.GetSessionId()
	if req.Session != "" && req.Session != of {
		return req, failure.Newf(failure.UserInvalidInput, op,
			"session_id: the trace is of session %s, in which its turn is resumed; leave it empty, or fork", of).With("fields", "session_id")
	}
	req.Session = of
	return req, nil
}

// earlier is the trace from which a request continues. A trace of another user is not found.
func (d *Decider) earlier(ctx context.Context, req request.Request) (trace.Running, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	found, err := retry.Do(ctx, func(ctx context.Context) (trace.Running, error) {
		return d.Traces.Store().Load(ctx, trace.Ref{Tenant: req.Tenant, Trace: req.From.Trace})
	})
	if failure.Is(err, failure.NotFound) || err == nil && found.Terms.User != req.User {
		return trace.Running{}, failure.Newf(failure.NotFound, op,
			"trace_id: no trace %s is known; traces are kept for a while after they end", req.From.Trace)
	}
	return found, err
}

// fromEarlier is the admission of a new turn that resumes or forks an earlier trace.
func (d *Decider) fromEarlier(ctx context.Context, req request.Request, begin memory.Begin) (Admission, error) {
	found, err := d.earlier(ctx, req)
	if err != nil {
		return Admission{}, err
	}
	if found.Record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
		return Admission{}, errNotContinued("it still runs; wait for its end, or cancel it", req.From.Trace)
	}
	decided := d.WithTarget(begin, found.Record.GetTarget())
	decided.Labels = request.LabelsOf(found)
	if req.From.Fork { // it begins a run of its own, and what it runs again it also chooses again
		decided.Labels = decided.Labels.WithoutChoicesFrom(req.From.Step)
		decided.Labels.Root, decided.Labels.Budget = "", nil
	} else {
		if err := checkResumable(found.Record); err != nil {
			return Admission{}, err
		}
		decided.Labels = decided.Labels.After(found.Record.GetResult(), decided.Flow.Budget)
	}
	past, err := d.loadPast(ctx, req, found)
	if err != nil {
		return Admission{}, err
	}
	if decided.Labels, err = decided.Labels.WithChoices(past.choices); err != nil {
		return Admission{}, err
	}
	if req.From.Fork {
		return d.fork(ctx, req, decided, past)
	}
	decided.Begin.Resumes, decided.Begin.Inherited = past.turn.ID, past.finished()
	decided.Rerun = failedSteps(found.Record)
	return decided, nil
}

// checkResumable reports why the turn of a trace cannot be resumed; nil when it can.
func checkResumable(record *troupev1.Trace) error {
	result := record.GetResult()
	switch p := result.GetPartial(); {
	case result.GetOutcome() != troupev1.TurnOutcome_TURN_OUTCOME_FAILED:
		return errNotContinued("its turn did not fail; fork it to do it again", record.GetTraceId())
	case p == nil:
		return errNotContinued("no step of it was completed; send the request again", record.GetTraceId())
	case !p.GetRecoverable():
		mode := string(grpcfailure.FromProto(result.GetFailure()).Mode)
		return errNotContinued("its failure, "+mode+", is none that passes; look into it, and fork the trace or say again what you want", record.GetTraceId())
	}
	return nil
}

func errNotContinued(why, traceID string) error {
	return failure.Newf(failure.TurnNotOpen, op, "trace %s cannot be continued: %s", traceID, why).With("trace_id", traceID)
}

// ErrSessionMoved says in the words of the caller, who knows traces, that the memory service resumes only
// the last turn of a session.
func ErrSessionMoved(traceID string) error {
	return errNotContinued("its session has gone on since, or was cleared or compacted; fork it (troupe ask --from "+traceID+
		" --step N), or resume its latest trace", traceID)
}

// past is what is known of the turn of an earlier trace.
type past struct {
	ref     session.Ref
	turn    session.Turn
	account trace.Steps
	// choices bind the new turn: all of them, or with a fork those before its step.
	choices map[int]*troupev1.RoutingDecision
}

// loadPast reads the turn from the memory service, and from its trace what only that has.
func (d *Decider) loadPast(ctx context.Context, req request.Request, found trace.Running) (past, error) {
	record := found.Record
	p := past{ref: session.Ref{Tenant: req.Tenant, Session: record.GetSessionId()}}
	known, _, err := d.Known(ctx, memory.Begin{
		Ref: p.ref, User: req.User, TurnID: record.GetTurnId(), TraceID: NewTraceID(), Fingerprint: found.Terms.Fingerprint,
		LeaseTTL: lease.Duration, Window: 1,
	})
	if failure.Is(err, failure.NotFound, failure.SessionDeleted) {
		return p, errNotContinued("what its turn had done is forgotten; say again what you want", record.GetTraceId())
	}
	if err != nil {
		return p, err
	}
	p.turn = known.Turn
	events, err := d.allEvents(ctx, trace.Ref{Tenant: req.Tenant, Trace: record.GetTraceId()}, record.GetLastSequence())
	p.account, p.choices = trace.StepsOf(events), trace.Choices(eventsBefore(events, req.From.Step))
	return p, err
}

// eventsBefore are the events up to the last one of the steps below a step; all of them for step 0. What
// was chosen after that is chosen again.
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

// eventPage is how many events are read at once.
const eventPage = 256

// allEvents reads the events of a trace that has ended.
func (d *Decider) allEvents(ctx context.Context, ref trace.Ref, last uint64) (all []*troupev1.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	for after := uint64(0); after < last; after = all[len(all)-1].GetSequence() {
		page, err := d.eventPage(ctx, ref, after)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return nil, errNotContinued("its events are no longer kept", ref.Trace)
		}
		all = append(all, page...)
	}
	return all, nil
}

func (d *Decider) eventPage(ctx context.Context, ref trace.Ref, after uint64) ([]*troupev1.Event, error) {
	return retry.Do(ctx, func(ctx context.Context) ([]*troupev1.Event, error) {
		return d.Traces.Store().Events(ctx, ref, after, eventPage)
	})
}

// withChoicesOf returns the labels of a turn that continues the turn of a trace: it inherits the choices
// of that one, and of those that it had inherited from.
func (d *Decider) withChoicesOf(ctx context.Context, ref trace.Ref, labels request.Labels) (request.Labels, error) {
	for after := uint64(0); ; {
		page, err := d.eventPage(ctx, ref, after)
		if err != nil {
			return labels, err
		}
		if labels, err = labels.WithChoices(trace.Choices(page)); err != nil || len(page) < eventPage {
			return labels, err
		}
		after = page[len(page)-1].GetSequence()
	}
}

// finished are the results of the finished steps, by number: those that were committed, and those that
// failed and that the turn survived.
func (p past) finished() []execution.Result {
	all := slices.Clone(p.turn.Steps)
	for step, r := range p.account.Finished {
		known := slices.ContainsFunc(all, func(r execution.Result) bool { return r.Step == step })
		if r.GetFailure() != nil && p.account.Tolerated[step] && !known {
			all = append(all, wire.ResultFromProto(r))
		}
	}
	slices.SortFunc(all, func(a, b execution.Result) int { return cmp.Compare(a.Step, b.Step) })
	return all
}

// failedSteps are the agents of the steps that run again when a trace is resumed, by number. What those
// steps did is in journals that only the same agents may read.
func failedSteps(record *troupev1.Trace) map[int]string {
	agents := map[int]string{}
	for _, s := range record.GetResult().GetPartial().GetStepResults() {
		if s.GetFailure() != nil {
			agents[int(s.GetStep())] = s.GetAgent()
		}
	}
	return agents
}

// FailedSteps are the steps that a turn runs again because it resumes a trace; nil when that is not kept
// any more.
func (d *Decider) FailedSteps(ctx context.Context, req request.Request) map[int]string {
	if !req.From.IsResume() {
		return nil
	}
	found, err := d.earlier(ctx, req)
	if err != nil {
		return nil
	}
	return failedSteps(found.Record)
}
