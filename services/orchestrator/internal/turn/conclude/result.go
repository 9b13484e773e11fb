package conclude

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/failedturn"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
)

// maxOutput is the maximum length, in characters, of the answer in the aggregate event.
const maxOutput = 500

// finalStage maps the outcome of a turn to the stage in which it ends.
var finalStage = map[session.Outcome]troupev1.Stage{
	session.OutcomeCompleted:     troupev1.Stage_STAGE_COMPLETE,
	session.OutcomeFailed:        troupev1.Stage_STAGE_FAILED,
	session.OutcomeCancelled:     troupev1.Stage_STAGE_CANCELLED,
	session.OutcomeInputRequired: troupev1.Stage_STAGE_INPUT_REQUIRED,
	session.OutcomeAuthRequired:  troupev1.Stage_STAGE_INPUT_REQUIRED,
}

// publishTotals publishes the totals of all steps, before the last event.
func publishTotals(ctx context.Context, w *publish.Writer, results []execution.Result) error {
	sum := &troupev1.Aggregate{Steps: int32(len(results)), Usage: wire.UsageToProto(totalUsage(results))}
	for _, r := range results {
		sum.Agents = append(sum.Agents, r.Agent)
	}
	sum.Output = conversation.Excerpt(answer(results).Text, maxOutput)
	sum.TraceLength = int32(w.EventLog().Length()) + 1
	return w.Write(ctx, troupev1.Stage_STAGE_AGGREGATE, &troupev1.Event{Payload: &troupev1.Event_Aggregate{Aggregate: sum}})
}

// lastEvent returns the last event of a closed turn, with the totals of its trace.
func lastEvent(w *publish.Writer, closed session.Turn, duration time.Duration) *troupev1.Event {
	result := turnResult(closed)
	result.Duration = durationpb.New(duration)
	result.Metrics = w.EventLog().Metrics(duration)
	result.Used = wire.UsedToProto(w.Usage())
	result.Partial = partialResult(closed, w.EventLog().StepSummary())
	return &troupev1.Event{
		Stage: finalStage[closed.Outcome], Time: timestamppb.Now(),
		Payload: &troupev1.Event_TurnResult{TurnResult: result},
	}
}

// turnResult returns the result of a closed turn, as far as the record of the turn contains it.
func turnResult(closed session.Turn) *troupev1.TurnResult {
	result := &troupev1.TurnResult{Outcome: memorywire.OutcomeToProto(closed.Outcome), Usage: wire.UsageToProto(totalUsage(closed.Steps))}
	switch closed.Outcome {
	case session.OutcomeCompleted, session.OutcomeInputRequired, session.OutcomeAuthRequired:
		last := answer(closed.Steps)
		result.Text, result.Agent, result.Confidence = last.Text, last.Agent, last.Confidence
		result.Pending = wire.PendingToProto(pendingCalls(closed))
	default:
		if closed.Failure != nil {
			result.Failure = grpcfailure.ToProto(closed.Failure)
		}
	}
	return result
}

// pendingCalls returns the calls of an ended turn that need external input.
func pendingCalls(closed session.Turn) (pending []execution.Pending) {
	if !closed.Outcome.NeedsInput() {
		return nil
	}
	for _, r := range resultsThatAsk(closed.Steps) {
		pending = append(pending, r.Pending...)
	}
	return pending
}

// resultsThatAsk returns the results because of which a turn needs input: those of the steps whose calls wait, or else a
// question of the last step.
func resultsThatAsk(results []execution.Result) (asking []execution.Result) {
	for i, r := range results {
		if len(r.Pending) > 0 || r.InputRequired && i == len(results)-1 {
			asking = append(asking, r)
		}
	}
	return asking
}

// answer returns the result with the text of the turn: the last result, or the result of the step whose calls wait. If several
// branches wait, its text names the calls of all.
func answer(results []execution.Result) (last execution.Result) {
	if len(results) == 0 {
		return last
	}
	asking := resultsThatAsk(results)
	if len(asking) == 0 {
		return results[len(results)-1]
	}
	last = asking[0]
	if len(asking) > 1 {
		last.Text = pendingcall.Summary(pendingCalls(session.Turn{Steps: results, Outcome: session.OutcomeInputRequired}))
	}
	return last
}

// totalUsage adds up the usage of the steps, except those that another turn ran.
func totalUsage(steps []execution.Result) execution.Usage {
	var sum execution.Usage
	for _, r := range steps {
		if !r.Inherited {
			sum = sum.Add(r.Usage)
		}
	}
	return sum
}

// partialResult returns the completed steps of a failed turn (OC-26, nil when there are none). The record of the
// turn has the committed steps. Only the trace has the failed ones.
func partialResult(closed session.Turn, account trace.StepSummary) *troupev1.PartialResult {
	if closed.Outcome != session.OutcomeFailed {
		return nil
	}
	p := failedturn.Progress{Trace: closed.Trace, Mode: failure.ModeOf(closed.Failure), Results: map[int]execution.Result{}, EndTimes: account.EndedAt}
	for step, r := range account.Finished {
		if r.GetFailure() != nil {
			p.Results[step] = wire.ResultFromProto(r)
		}
	}
	for step, agent := range account.Running {
		p.Results[step] = execution.Result{Step: step, Agent: agent, Failure: closed.Failure}
	}
	for _, r := range closed.Steps {
		p.Results[r.Step] = r
	}
	for _, step := range slices.Sorted(maps.Keys(p.Results)) {
		r := p.Results[step]
		if r.Failure == nil {
			p.CompletedSteps = append(p.CompletedSteps, step)
			continue
		}
		p.FailedSteps = append(p.FailedSteps, step)
		if p.FailedAtStep == 0 && !account.Tolerated[step] && !r.Inherited {
			p.FailedAtStep = step
		}
	}
	if len(p.CompletedSteps) == 0 {
		return nil
	}
	p.PlannedSteps = max(account.PlannedCount, len(p.Results))
	return wire.PartialToProto(p)
}
