package decide

import (
	"context"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// admitResume returns the admission of a turn that resumes the failed turn of an earlier trace.
func (d *Decider) admitResume(ctx context.Context, req request.Request, begin memory.Begin) (Admission, error) {
	found, err := d.endedTrace(ctx, req)
	if err != nil {
		return Admission{}, err
	}
	if err := checkResumable(found.Record); err != nil {
		return Admission{}, err
	}
	decided := d.withTarget(ResumeTurn, begin, found.Record.GetTarget())
	past, err := d.loadEarlierTurn(ctx, req, found)
	if err != nil {
		return Admission{}, err
	}
	decided.Begin.Predecessor.Resumes, decided.Begin.Predecessor.Inherited = past.turn.ID, past.finishedResults()
	decided.Rerun = failedSteps(found.Record)
	decided.Labels, err = request.LabelsFromTrace(found).WithUsage(found.Record.GetResult(), decided.Flow.Budget).WithChoices(past.choices)
	return decided, err
}

// endedTrace loads the earlier trace of a request. It fails if that trace has not ended.
func (d *Decider) endedTrace(ctx context.Context, req request.Request) (trace.RunningTrace, error) {
	found, err := d.earlierTrace(ctx, req)
	if err == nil && found.Record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
		err = notContinuedError("it still runs; wait for its end, or cancel it", req.Source.Trace)
	}
	return found, err
}

// checkResumable returns the reason why the turn of a trace cannot be resumed (nil when it can).
func checkResumable(record *troupev1.Trace) error {
	result := record.GetResult()
	switch p := result.GetPartial(); {
	case result.GetOutcome() != troupev1.TurnOutcome_TURN_OUTCOME_FAILED:
		return notContinuedError("its turn did not fail; fork it to do it again", record.GetTraceId())
	case p == nil:
		return notContinuedError("no step of it was completed; send the request again", record.GetTraceId())
	case !p.GetRecoverable():
		mode := string(grpcfailure.FromProto(result.GetFailure()).Mode)
		return notContinuedError("its failure, "+mode+", is none that passes; look into it, and fork the trace or say again what you want", record.GetTraceId())
	}
	return nil
}

// failedSteps returns, by number, the agents of the steps that run again when a trace is resumed. Only the same
// agents may read the journals of these steps.
func failedSteps(record *troupev1.Trace) map[int]string {
	agents := map[int]string{}
	for _, s := range record.GetResult().GetPartial().GetStepResults() {
		if s.GetFailure() != nil {
			agents[int(s.GetStep())] = s.GetAgent()
		}
	}
	return agents
}

// FailedSteps returns the agents of the steps that a turn runs again because it resumes a trace (nil when the
// trace has expired).
func (d *Decider) FailedSteps(ctx context.Context, req request.Request) map[int]string {
	if !req.Source.IsResume() {
		return nil
	}
	found, err := d.earlierTrace(ctx, req)
	if err != nil {
		return nil
	}
	return failedSteps(found.Record)
}

func notContinuedError(why, traceID string) error {
	return failure.Newf(failure.TurnNotOpen, op, "trace %s cannot be continued: %s", traceID, why).With("trace_id", traceID)
}

// NewSessionMovedError returns the error for resuming a trace that is not the last one of its session. Only the
// last turn can be resumed.
func NewSessionMovedError(traceID string) error {
	return notContinuedError("its session has gone on since, or was cleared or compacted; fork it (troupe ask --from "+traceID+
		" --step N), or resume its latest trace", traceID)
}

// earlierTrace loads the trace from which a request continues. It returns not_found for a trace of another user.
func (d *Decider) earlierTrace(ctx context.Context, req request.Request) (trace.RunningTrace, error) {
	found, err := d.loadTrace(ctx, trace.Ref{Tenant: req.Tenant, Trace: req.Source.Trace})
	if failure.Is(err, failure.NotFound) || err == nil && found.Turn.User != req.User {
		return trace.RunningTrace{}, failure.Newf(failure.NotFound, op,
			"trace_id: no trace %s is known; traces are kept for a while after they end", req.Source.Trace)
	}
	return found, err
}

// loadTrace loads a trace. Modes: not_found.
func (d *Decider) loadTrace(ctx context.Context, ref trace.Ref) (trace.RunningTrace, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	return retry.Do(ctx, func(ctx context.Context) (trace.RunningTrace, error) { return d.Traces.Store().Load(ctx, ref) })
}
