package turn

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// From is an earlier trace from which a turn goes on (OC-27). The zero From is none.
type From struct {
	Trace string
	Step  int  // the first that is done anew, of a fork
	Fork  bool // in a session of its own; else in the place of the turn that failed
}

func (f From) proto() *troupev1.From {
	if f == (From{}) {
		return nil
	}
	return &troupev1.From{TraceId: f.Trace, Step: int32(f.Step), Fork: f.Fork}
}

// FromProto is the inverse.
func FromProto(f *troupev1.From) From {
	return From{Trace: f.GetTraceId(), Step: int(f.GetStep()), Fork: f.GetFork()}
}

const opFrom = "turn.Orchestrate"

// located is a request with the session in which it goes on.
func (r *Runner) located(ctx context.Context, req Request) (Request, error) {
	if req.From.Trace == "" || req.From.Fork {
		return req, nil
	}
	found, err := r.earlier(ctx, req)
	if err != nil {
		return req, err
	}
	of := found.Record.GetSessionId()
	if req.Session != "" && req.Session != of {
		return req, failure.Newf(failure.UserInvalidInput, opFrom,
			"session_id: the trace is of session %s, in which its turn is gone on with; leave it empty, or fork", of).With("fields", "session_id")
	}
	req.Session = of
	return req, nil
}

// earlier is the trace from which a request goes on. One of another user is as one that is not
// known.
func (r *Runner) earlier(ctx context.Context, req Request) (trace.Running, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	found, err := retry.Do(ctx, func(ctx context.Context) (trace.Running, error) {
		return r.Traces.Store().Load(ctx, trace.Ref{Tenant: req.Tenant, Trace: req.From.Trace})
	})
	if failure.Is(err, failure.NotFound) || err == nil && found.Terms.User != req.User {
		return trace.Running{}, failure.Newf(failure.NotFound, opFrom, "trace_id: no trace %s is known; traces are kept for a while after they end", req.From.Trace)
	}
	return found, err
}

// from is what is asked for in the name of a request that goes on from an earlier trace, or the
// turn as which it is known already.
func (r *Runner) from(ctx context.Context, req Request) (admission, error) {
	if req.Target != "" {
		return admission{}, failure.New(failure.UserInvalidInput, opFrom, "target: what goes on from a trace is handled as that was; leave it empty").With("fields", "target")
	}
	begin := r.request(req, workflow.Single(""))
	known, err := r.known(ctx, begin)
	left, unsure := r.unsure.look(begin.TurnID)
	switch {
	case err == nil && unsure && left.id == known.Turn.Trace: // its trace may not be stored
		a := r.directed(begin, left.target)
		a.labels, a.redo = left.labels, r.failedSteps(ctx, req)
		return a, nil
	case err == nil:
		a, err := r.like(ctx, req, begin, known.Turn.Trace)
		a.redo = r.failedSteps(ctx, req)
		return a, err
	case !failure.Is(err, failure.NotFound):
		return admission{}, err
	}
	found, err := r.earlier(ctx, req)
	if err != nil {
		return admission{}, err
	}
	if found.Record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
		return admission{}, notFrom("it still runs; wait for its end, or cancel it", req.From.Trace)
	}
	a := r.directed(begin, found.Record.GetTarget())
	a.labels = labelsOf(found)
	if req.From.Fork { // somebody begins a run with it, and what is done anew is chosen anew
		a.labels = a.labels.choosing(req.From.Step)
		a.labels.Root, a.labels.Budget = "", nil
	} else {
		if err := resumable(found.Record); err != nil {
			return admission{}, err
		}
		a.labels = a.labels.after(found.Record.GetResult(), a.flow.Budget)
	}
	past, err := r.pastOf(ctx, req, found)
	if err != nil {
		return admission{}, err
	}
	if a.labels, err = a.labels.following(past.choices); err != nil {
		return admission{}, err
	}
	if req.From.Fork {
		return r.fork(ctx, req, a, past)
	}
	a.begin.Resumes, a.begin.Inherited = past.turn.ID, past.through()
	a.redo = redo(found.Record)
	return a, nil
}

// resumable says why the turn of a trace is not gone on with; nil when it is.
func resumable(record *troupev1.Trace) error {
	result := record.GetResult()
	switch p := result.GetPartial(); {
	case result.GetOutcome() != troupev1.TurnOutcome_TURN_OUTCOME_FAILED:
		return notFrom("its turn did not fail; fork it to do it again", record.GetTraceId())
	case p == nil:
		return notFrom("no step of it was completed; send the request again", record.GetTraceId())
	case !p.GetRecoverable():
		return notFrom("its failure, "+string(grpcfailure.FromProto(result.GetFailure()).Mode)+", is none that passes; look into it, and fork the trace or say again what you want", record.GetTraceId())
	}
	return nil
}

func notFrom(why, traceID string) error {
	return failure.Newf(failure.TurnNotOpen, opFrom, "trace %s cannot be gone on with: %s", traceID, why).With("trace_id", traceID)
}

// goneOn says in the words of the caller, who knows traces, that the memory service goes on with
// no turn but the last one of its session.
func goneOn(traceID string) error {
	return notFrom("its session has gone on since, or was cleared or compacted; fork it (troupe ask --from "+traceID+" --step N), or resume its latest trace", traceID)
}

// past is what is known of the turn of an earlier trace.
type past struct {
	ref  session.Ref
	turn session.Turn
	told trace.Account
	// choices among agents that the turn is bound to: of one that is forked, those before the step.
	choices map[int]*troupev1.RoutingDecision
}

// pastOf reads the turn from the memory service, and from its trace what only that tells.
func (r *Runner) pastOf(ctx context.Context, req Request, found trace.Running) (past, error) {
	record := found.Record
	p := past{ref: session.Ref{Tenant: req.Tenant, Session: record.GetSessionId()}}
	known, err := r.known(ctx, memory.Begin{
		Ref: p.ref, User: req.User, TurnID: record.GetTurnId(), TraceID: traceID(), Fingerprint: found.Terms.Fingerprint, Lease: lease, Window: 1,
	})
	if failure.Is(err, failure.NotFound, failure.SessionDeleted) {
		return p, notFrom("what its turn had done is forgotten; say again what you want", record.GetTraceId())
	}
	if err != nil {
		return p, err
	}
	p.turn = known.Turn
	events, err := r.events(ctx, trace.Ref{Tenant: req.Tenant, Trace: record.GetTraceId()}, record.GetLastSequence())
	p.told, p.choices = trace.AccountOf(events), trace.Choices(before(events, req.From.Step))
	return p, err
}

// before are the events up to the last one of a step below; all of them for 0. What was chosen
// behind that is chosen anew.
func before(events []*troupev1.Event, step int) []*troupev1.Event {
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

// events are all of a trace that has ended.
func (r *Runner) events(ctx context.Context, ref trace.Ref, last uint64) (all []*troupev1.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	for after := uint64(0); after < last; after = all[len(all)-1].GetSequence() {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]*troupev1.Event, error) {
			return r.Traces.Store().Events(ctx, ref, after, eventPage)
		})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return nil, notFrom("its events are no longer kept", ref.Trace)
		}
		all = append(all, page...)
	}
	return all, nil
}

// eventPage is how many events are read at once.
const eventPage = 256

// through are the results of the steps that the turn was through with, by number: those that it
// had committed, and those that failed and that it survived.
func (p past) through() []execution.Result {
	all := slices.Clone(p.turn.Steps)
	for step, r := range p.told.Finished {
		known := slices.ContainsFunc(all, func(r execution.Result) bool { return r.Step == step })
		if r.GetFailure() != nil && p.told.Survived[step] && !known {
			all = append(all, wire.ResultFromProto(r))
		}
	}
	slices.SortFunc(all, func(a, b execution.Result) int { return cmp.Compare(a.Step, b.Step) })
	return all
}

// redo are the agents of the steps that a turn is to do again, by number: what they had done is
// in journals, which are nobody else's.
func redo(record *troupev1.Trace) map[int]string {
	agents := map[int]string{}
	for _, s := range record.GetResult().GetPartial().GetStepResults() {
		if s.GetFailure() != nil {
			agents[int(s.GetStep())] = s.GetAgent()
		}
	}
	return agents
}

// failedSteps is redo of the trace with which a turn goes on; nil when it is not kept any more.
func (r *Runner) failedSteps(ctx context.Context, req Request) map[int]string {
	if req.From.Trace == "" || req.From.Fork {
		return nil
	}
	found, err := r.earlier(ctx, req)
	if err != nil {
		return nil
	}
	return redo(found.Record)
}

// strayed refuses to go on when the workflow does not lead any more to the steps that were done,
// or whose journals are there: nobody else gets them.
func (t *turn) strayed(round []cursor.Task) error {
	agents := map[int]string{}
	maps.Copy(agents, t.redo)
	for _, r := range t.turn.Steps {
		if r.Inherited {
			agents[r.Step] = r.Agent
		}
	}
	for _, task := range round {
		if agent, had := agents[task.Number]; had && agent != task.Decision.Step.Agent {
			return strayed(task.Number, agent)
		}
	}
	if len(round) > 0 {
		return nil
	}
	for step, agent := range agents {
		if step > len(t.results) {
			return strayed(step, agent)
		}
	}
	return nil
}

func strayed(step int, agent string) error {
	return failure.Newf(failure.Nondeterminism, "turn",
		"the workflow has changed since step %d was done by agent %s, and does not lead there any more; say again what you want", step, agent)
}

// inherited reports whether a step was done by an earlier turn.
func (t *turn) inherited(number int) bool {
	return slices.ContainsFunc(t.turn.Steps, func(r execution.Result) bool { return r.Step == number && r.Inherited })
}
