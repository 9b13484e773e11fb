package decide

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// admitInDoubt returns the admission of a turn whose begin is in doubt. Its trace may not be stored, so the target
// and the labels come from the first attempt.
func (d *Decider) admitInDoubt(ctx context.Context, req request.Request, begin memory.Begin, tried BeginAttempt) Admission {
	decided := d.withTarget(RetryBegin, begin, tried.Target)
	decided.Labels, decided.Rerun = tried.Labels, d.FailedSteps(ctx, req)
	return decided
}

// admitRepeated returns the admission of a request whose turn already exists. The trace of the turn determines the
// target and the labels.
func (d *Decider) admitRepeated(ctx context.Context, req request.Request, begin memory.Begin, traceID string) (Admission, error) {
	decided, err := d.admitLikeTrace(ctx, req, begin, traceID)
	decided.Case, decided.Rerun = Repeated, d.FailedSteps(ctx, req)
	return decided, err
}

// admitAnswers returns the admission of answers. They begin a new turn that continues the turn with the pending
// calls.
func (d *Decider) admitAnswers(ctx context.Context, req request.Request, begin memory.Begin, seen session.Session) (_ Admission, err error) {
	begin.Predecessor.Continues = seen.WaitingTurn
	if begin.Predecessor.Answers, err = pendingcall.CheckAnswers(seen.Pending, stampAnswers(req.Answers, req.Auth.Actor), time.Now()); err != nil {
		return Admission{}, err
	}
	decided, err := d.admitLikeTrace(ctx, req, begin, seen.LastTrace)
	decided.Case, decided.Pending = ContinueTurn, seen.Pending
	return decided, err
}

// stampAnswers returns the answers with their author and with whether they came in time. Only the orchestrator
// sets these fields.
func stampAnswers(answers []execution.Answer, actor string) []execution.Answer {
	all := make([]execution.Answer, len(answers))
	for i, answer := range answers {
		all[i] = execution.Answer{ID: answer.ID, Verdict: answer.Verdict, Text: answer.Text, By: actor, Sealed: answer.Sealed}
	}
	return all
}

// admitLikeTrace returns the admission of a turn with the target and the labels of another trace.
func (d *Decider) admitLikeTrace(ctx context.Context, req request.Request, begin memory.Begin, traceID string) (Admission, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	ref := trace.Ref{Tenant: req.Tenant, Trace: traceID}
	found, err := d.loadTrace(ctx, ref)
	switch {
	case failure.Is(err, failure.NotFound):
		return Admission{Begin: begin, Flow: workflow.SingleAgent(""), TargetErr: errTraceGone}, nil
	case err != nil:
		return Admission{}, err
	}
	record := found.Record
	decided := d.WithTarget(begin, record.GetTarget())
	decided.Labels = request.LabelsFromTrace(found).WithUsage(record.GetResult(), decided.Flow.Budget)
	if decided.Flow.Chooses() {
		decided.Labels, err = d.withChoicesOfTrace(ctx, ref, decided.Labels)
	}
	decided.PendingSince = record.GetStarted().AsTime().Add(record.GetResult().GetDuration().AsDuration())
	return decided, err
}

// withChoicesOfTrace returns the labels of a turn that continues the turn of a trace. They contain the choices of
// that turn, including those that it had inherited.
func (d *Decider) withChoicesOfTrace(ctx context.Context, ref trace.Ref, labels request.Labels) (request.Labels, error) {
	for after := uint64(0); ; {
		page, err := d.loadEventPage(ctx, ref, after)
		if err != nil {
			return labels, err
		}
		if labels, err = labels.WithChoices(trace.ChoicesByNumber(page)); err != nil || len(page) < eventPageSize {
			return labels, err
		}
		after = page[len(page)-1].GetSequence()
	}
}

// ErrNothingPending is the error for answers when no call is pending.
var ErrNothingPending = failure.New(failure.TurnNotOpen, op,
	"answers: nothing waits in the session: it was answered before, or a text came instead; GetSession shows what waits")

// errTraceGone is the error for a request whose earlier trace has expired, or was never stored because its
// orchestrator was lost too early.
var errTraceGone = failure.New(failure.TurnNotOpen, op,
	"the turn cannot be continued: its trace is not kept, and only that says who handles it; send a text instead")
