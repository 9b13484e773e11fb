package decide

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// decideAnswers decides about a request that answers pending calls (AD-32, LP-32). When nothing is
// pending and the turn is unknown, the memory service is asked for a turn that continues itself. It never
// grants that, and its answer is the truth, also about a session that is busy.
func (d *Decider) decideAnswers(ctx context.Context, req request.Request, begin memory.Begin) (Admission, error) {
	begin.Continues = begin.TurnID
	seen, err := d.session(ctx, req.Ref())
	if err != nil {
		return Admission{}, err
	}
	known, found, err := d.Known(ctx, begin)
	if err != nil && (found != Absent || seen.User != req.User) {
		return Admission{}, err
	}
	switch c := CaseOf(Answers, d.orInDoubt(found, begin.TurnID, known.Turn.Trace), len(seen.Pending) > 0); c {
	case RetryBegin, Repeated:
		return d.asBefore(ctx, req, begin, known.Turn.Trace, c)
	case NothingPending:
		return Admission{Case: c, Begin: begin, Flow: workflow.Single("")}, nil
	default:
		begin.Continues = seen.WaitingTurn
		if begin.Answers, err = pendingcall.CheckAnswers(seen.Pending, signed(req.Answers, req.Auth.Actor), time.Now()); err != nil {
			return Admission{}, err
		}
		decided, err := d.likeTrace(ctx, req, begin, seen.LastTrace)
		decided.Case, decided.Pending = c, seen.Pending
		return decided, err
	}
}

// signed returns answers as the orchestrator passes them on: it alone says who gave them, and whether
// they came in time.
func signed(answers []execution.Answer, actor string) []execution.Answer {
	all := make([]execution.Answer, len(answers))
	for i, answer := range answers {
		all[i] = execution.Answer{ID: answer.ID, Verdict: answer.Verdict, Text: answer.Text, By: actor, Sealed: answer.Sealed}
	}
	return all
}

func (d *Decider) session(ctx context.Context, ref session.Ref) (session.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	return retry.Do(ctx, func(ctx context.Context) (session.Session, error) { return d.Memory.GetSession(ctx, ref) })
}

// likeTrace has a turn handled as the turn of a trace was.
func (d *Decider) likeTrace(ctx context.Context, req request.Request, begin memory.Begin, traceID string) (Admission, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	ref := trace.Ref{Tenant: req.Tenant, Trace: traceID}
	found, err := retry.Do(ctx, func(ctx context.Context) (trace.Running, error) { return d.Traces.Store().Load(ctx, ref) })
	switch {
	case failure.Is(err, failure.NotFound):
		return Admission{Begin: begin, Flow: workflow.Single(""), TargetErr: errTraceGone}, nil
	case err != nil:
		return Admission{}, err
	}
	record := found.Record
	decided := d.WithTarget(begin, record.GetTarget())
	decided.Labels = request.LabelsOf(found).After(record.GetResult(), decided.Flow.Budget)
	if decided.Flow.Chooses() {
		decided.Labels, err = d.withChoicesOf(ctx, ref, decided.Labels)
	}
	decided.Since = record.GetStarted().AsTime().Add(record.GetResult().GetDuration().AsDuration())
	return decided, err
}

// ErrNothingPending rejects answers when no call is pending.
var ErrNothingPending = failure.New(failure.TurnNotOpen, op,
	"answers: nothing waits in the session: it was answered before, or a text came instead; GetSession shows what waits")

// errTraceGone rejects a request whose earlier trace has expired, or was never stored because its
// orchestrator went away at once.
var errTraceGone = failure.New(failure.TurnNotOpen, op,
	"the turn cannot be continued: its trace is not kept, and only that says who handles it; send a text instead")
