package step

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
)

// publishResult builds the result of a step from its outcome, and publishes it. A failed step has a result that
// contains its failure. An error comes from the dispatcher or from the trace, and ends the turn.
func (t *Turn) publishResult(ctx context.Context, a *attempt, result *troupev1.StepResult, err error) error {
	step := a.Task.Decision.Step
	if err != nil {
		survived := failure.Is(err, failure.NoWorker, failure.AgentContract, failure.StateViolation) ||
			failure.Is(err, failure.AttemptsExhausted) && step.OnError.ContinuesTurn()
		if !survived {
			return err
		}
		result = &troupev1.StepResult{Failure: grpcfailure.ToProto(err)}
	}
	if breach := a.checkResult(result); breach != nil {
		result = &troupev1.StepResult{Failure: grpcfailure.ToProto(breach), Used: result.GetUsed()}
	}
	result.Step, result.Agent = int32(a.Origin.Number), step.Agent
	a.result = wire.ResultFromProto(result)
	if a.result.Failure != nil && step.OnError.ContinuesTurn() {
		t.Events.Logger().Warn("step failed; the turn continues",
			zap.String("trace", t.Events.TraceID()), zap.Int("step", a.Origin.Number), zap.Error(a.result.Failure))
	}
	return t.Events.WriteStep(ctx, a.Origin, &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{
		Result: result, Duration: durationpb.New(time.Since(a.began)),
	}}})
}

// checkResult returns the contract violation in a successful result (nil when there is none).
func (a *attempt) checkResult(result *troupev1.StepResult) error {
	step := a.Task.Decision.Step
	if a.Task.IsBranch() && len(result.GetPending()) > 0 {
		return nil // it is not committed, and the turn ends after the round
	}
	ends := step.End || result.GetInputRequired() || result.GetStopped()
	committed := a.Conversation.LastSequence
	if ends {
		committed++ // the answer itself is one more message
	}
	switch {
	case result.GetFailure() != nil:
	case ends && a.Task.IsBranch():
		return failure.Newf(failure.AgentContract, "turn", "agent %s ended the turn in a branch of %s", step.Agent, step.Fork)
	case result.GetSequence() < committed:
		return failure.Newf(failure.AgentContract, "turn", "agent %s reported a result that it did not commit", step.Agent)
	}
	return nil
}

// publishViolation publishes that an attempt wrote, or tried to write, state of another owner. The worker reports
// this in the result, or the stream of the step shows it (SO-12). A violation that the worker has already
// published is not published again.
func (t *Turn) publishViolation(ctx context.Context, a *attempt, result *troupev1.StepResult, err error) error {
	v, ok := event.OwnershipViolation{}, false
	if lost, is := errors.AsType[*dispatch.LostError](err); is {
		if v, ok = event.ViolationFromError(lost.Failure); ok {
			a.Origin.Instance = lost.Instance.ID
			t.services.violations.Record(ctx, string(identity.Worker), v, map[string]string{"trace": t.Events.TraceID(), "instance": lost.Instance.ID})
		}
	} else if why := grpcfailure.FromProto(result.GetFailure()); why != nil {
		v, ok = event.ViolationFromError(why)
	}
	if !ok || slices.Contains(a.violatedKeys, v.Key) {
		return nil
	}
	return t.Events.WriteStep(ctx, a.Origin, &troupev1.Event{Payload: &troupev1.Event_OwnershipViolation{OwnershipViolation: wire.ViolationToProto(v)}})
}
