package turn

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/wire"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// routed says who works next.
func (t *turn) routed(ctx context.Context, decision routing.Decision) error {
	return t.emit(ctx, troupev1.Stage_STAGE_ROUTE, &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: decision.Proto()}})
}

// step routes to an agent and has it run. A step that failed is a result with its failure;
// an error is one of dispatching, or of the events.
func (t *turn) step(work, ctx context.Context, number int, decision routing.Decision) (execution.Result, error) {
	if err := t.routed(ctx, decision); err != nil {
		return execution.Result{}, err
	}
	began := time.Now()
	at := &position{number: number, attempt: t.firstAttempt(number), agent: decision.Step.Agent}
	result, err := t.execute(work, ctx, at, decision.Step)
	if err != nil {
		if !failure.Is(err, failure.NoWorker, failure.AgentContract) {
			return execution.Result{}, err
		}
		result = &troupev1.StepResult{Failure: failure.ToProto(err)}
	}
	committed := t.base // and one message more when it ends the turn, for that is the answer
	if decision.Step.End || result.GetInputRequired() || result.GetStopped() {
		committed++
	}
	if result.GetFailure() == nil && result.GetSequence() < committed {
		result = &troupev1.StepResult{Failure: failure.ToProto(failure.Newf(failure.AgentContract, "turn", "agent %s told a result that it did not commit", decision.Step.Agent))}
	}
	result.Step, result.Agent = int32(number), decision.Step.Agent
	err = t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{
		Result: result, Duration: durationpb.New(time.Since(began)),
	}}})
	return wire.ResultFromProto(result), err
}

func (t *turn) stepRequest(at *position, step workflow.Step) *troupev1.ExecuteStepRequest {
	req := &troupev1.ExecuteStepRequest{
		TraceId: t.turn.Trace, SessionId: t.req.Session, TurnId: t.turn.ID, Turn: int32(t.turn.Number),
		Step: int32(at.number), Attempt: int32(at.attempt), Epoch: t.turn.Epoch, Agent: step.Agent,
		History: wire.MessagesToProto(t.history), BaseSequence: t.base, Last: step.End,
		Auth: wire.AuthToProto(t.req.Auth), UserId: t.req.User,
		Profile: t.req.Profile, Metadata: t.req.Metadata, RequestId: t.req.RequestID,
	}
	if at.number == t.answered {
		req.Answers = wire.AnswersToProto(t.turn.Answers)
	}
	for _, r := range t.results {
		if r.Failure == nil {
			req.Prior = append(req.Prior, wire.ResultToProto(r))
		}
	}
	for _, name := range step.Routes {
		req.Routes = append(req.Routes, t.flow.Steps[name].Agent)
	}
	return req
}

// position is where in the turn an event of a step stands.
type position struct {
	number   int
	attempt  int
	agent    string
	instance string
	choice   *troupev1.InstanceChoice // why the instance
}

// fromWorker reports whether the event is one that a worker may send: what happens inside
// a step. It decides neither about routes nor about the turn.
func fromWorker(e *troupev1.Event) bool {
	switch e.GetPayload().(type) {
	case *troupev1.Event_TextDelta, *troupev1.Event_ModelCall, *troupev1.Event_ToolCallStarted,
		*troupev1.Event_ToolCallFinished, *troupev1.Event_ToolProgress, *troupev1.Event_SubtaskStarted, *troupev1.Event_ToolCallPending, *troupev1.Event_AgentMessage, *troupev1.Event_Thinking, *troupev1.Event_Warning:
		return true
	default:
		return false
	}
}
