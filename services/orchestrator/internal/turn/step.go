package turn

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
)

// routed says who works next, and at what, unless that is told: a choice is when it is made.
func (t *turn) routed(ctx context.Context, task cursor.Task) error {
	if t.isChosen(task.Decision) {
		return nil
	}
	task.Decision.Duration = t.deciding
	told := task.Decision.Proto()
	told.Number, told.Task = int32(task.Number), conversation.Brief(task.Decision.Step.Task, maxGoal)
	return t.emit(ctx, troupev1.Stage_STAGE_ROUTE, &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: told}})
}

// concluded makes a result of what came of a step. One that failed is a result with its failure;
// an error is one of dispatching, or of the events.
func (t *turn) concluded(ctx context.Context, a *attempt, result *troupev1.StepResult, err error) error {
	step := a.task.Decision.Step
	if err != nil {
		survived := failure.Is(err, failure.NoWorker, failure.AgentContract, failure.StateViolation) ||
			failure.Is(err, failure.AttemptsExhausted) && step.OnError.Survivable()
		if !survived {
			return err
		}
		result = &troupev1.StepResult{Failure: grpcfailure.ToProto(err)}
	}
	ends := step.End || result.GetInputRequired() || result.GetStopped()
	committed := t.base // and one message more when it ends the turn, for that is the answer
	if ends {
		committed++
	}
	var breach error
	switch {
	case result.GetFailure() != nil:
	case ends && a.task.IsBranch():
		breach = failure.Newf(failure.AgentContract, "turn", "agent %s ended the turn in a branch of %s", step.Agent, step.Fork)
	case result.GetSequence() < committed:
		breach = failure.Newf(failure.AgentContract, "turn", "agent %s told a result that it did not commit", step.Agent)
	}
	if breach != nil {
		result = &troupev1.StepResult{Failure: grpcfailure.ToProto(breach), Used: result.GetUsed()}
	}
	result.Step, result.Agent = int32(a.number), step.Agent
	a.result = wire.ResultFromProto(result)
	if a.result.Failure != nil && step.OnError.Survivable() {
		t.log.Warn("step failed; the turn goes on", zap.String("trace", t.turn.Trace), zap.Int("step", a.number), zap.Error(a.result.Failure))
	}
	return t.emitAt(ctx, &a.position, &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{
		Result: result, Duration: durationpb.New(time.Since(a.began)),
	}}})
}

func (t *turn) stepRequest(work context.Context, a *attempt) *troupev1.ExecuteStepRequest {
	step := a.task.Decision.Step
	req := &troupev1.ExecuteStepRequest{
		TraceId: t.turn.Trace, Tenant: t.req.Tenant, SessionId: t.req.Session, TurnId: t.turn.ID, Turn: int32(t.turn.Number),
		Step: int32(a.number), Attempt: int32(a.attempt), Epoch: t.turn.Epoch, Agent: step.Agent,
		History: wire.MessagesToProto(t.history), BaseSequence: t.base, Last: step.End, Silent: a.task.IsBranch(),
		Auth: wire.AuthToProto(t.req.Auth), UserId: t.req.User,
		OriginTurnId: t.turn.Origin, Profile: t.req.Profile, Metadata: t.req.Metadata, RequestId: t.req.RequestID, RootTraceId: t.events.Root(),
		Budget: t.allotment(a), Recorded: t.recorded,
	}
	if a.number == t.answered {
		req.Answers = wire.AnswersToProto(t.turn.Answers)
	}
	for _, number := range a.task.Prior {
		req.Prior = append(req.Prior, wire.ResultToProto(t.results[number-1]))
	}
	for _, name := range step.Routes {
		req.Routes = append(req.Routes, t.flow.Steps[name].Agent)
	}
	t.asks(work, req, step)
	return req
}

// position is where in the turn an event of a step stands.
type position struct {
	number   int
	attempt  int
	agent    string
	instance string
	choice   *troupev1.InstanceChoice // why the instance
	violated []string                 // keys of others that the attempt tried to write, as it told
}

// fromWorker reports whether the event is one that a worker may send: what happens inside
// a step. It decides neither about routes nor about the turn.
func fromWorker(e *troupev1.Event) bool {
	switch e.GetPayload().(type) {
	case *troupev1.Event_TextDelta, *troupev1.Event_ModelCall, *troupev1.Event_ToolCallStarted,
		*troupev1.Event_ToolCallFinished, *troupev1.Event_ToolProgress, *troupev1.Event_SubtaskStarted, *troupev1.Event_ToolCallPending, *troupev1.Event_AgentMessage, *troupev1.Event_Thinking, *troupev1.Event_Warning,
		*troupev1.Event_OwnershipViolation:
		return true
	default:
		return false
	}
}
