package turn

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

// stages in which a turn ends.
var stages = map[session.Outcome]troupev1.Stage{
	session.OutcomeCompleted:     troupev1.Stage_STAGE_COMPLETE,
	session.OutcomeFailed:        troupev1.Stage_STAGE_FAILED,
	session.OutcomeCancelled:     troupev1.Stage_STAGE_CANCELLED,
	session.OutcomeInputRequired: troupev1.Stage_STAGE_INPUT_REQUIRED,
	session.OutcomeAuthRequired:  troupev1.Stage_STAGE_INPUT_REQUIRED,
}

// emit appends an event outside of steps.
func (t *turn) emit(ctx context.Context, stage troupev1.Stage, e *troupev1.Event) error {
	e.Stage = stage
	if e.GetTime() == nil {
		e.Time = timestamppb.Now()
	}
	if err := t.order.to(stage); err != nil {
		return err
	}
	if err := t.events.Append(ctx, e); err != nil {
		return err
	}
	t.observe(ctx, e)
	return nil
}

// emitAt appends an event of a step. Whoever made it, its number is given here.
func (t *turn) emitAt(ctx context.Context, at *position, e *troupev1.Event) error {
	e.Sequence = 0
	e.Step, e.Attempt, e.Agent, e.InstanceId = int32(at.number), int32(at.attempt), at.agent, at.instance
	return t.emit(ctx, troupev1.Stage_STAGE_EXECUTE, e)
}

// initialize says what was asked and what is planned.
func (t *turn) initialize(ctx context.Context) error {
	if err := t.emit(ctx, troupev1.Stage_STAGE_INITIALIZE, started(t.req, t.target, t.turn, t.ready())); err != nil {
		return err
	}
	return t.emit(ctx, troupev1.Stage_STAGE_PLAN, &troupev1.Event{Payload: &troupev1.Event_Plan{Plan: t.plan()}})
}

// ready counts the instances that could take a step of this turn.
func (t *turn) ready() int {
	n := 0
	for _, agent := range t.flow.Agents() {
		n += t.Roster.Ready(agent)
	}
	return n
}

func (t *turn) aggregate(ctx context.Context) error {
	sum := &troupev1.Aggregate{Steps: int32(len(t.results)), Usage: wire.UsageToProto(usage(t.results))}
	for _, r := range t.results {
		sum.Agents = append(sum.Agents, r.Agent)
		sum.Output = conversation.Brief(r.Text, maxOutput) // of the last, as that of the turn
	}
	sum.TraceLength = int32(t.events.Length()) + 1
	return t.emit(ctx, troupev1.Stage_STAGE_AGGREGATE, &troupev1.Event{Payload: &troupev1.Event_Aggregate{Aggregate: sum}})
}

// started is the first event of a trace. It quotes what answers say, as it does the user's text,
// and leaves out what they have sealed.
func started(req Request, target string, turn session.Turn, ready int) *troupev1.Event {
	answers := wire.AnswersToProto(turn.Answers)
	for _, a := range answers {
		a.Text, a.Sealed = conversation.Brief(a.GetText(), maxGoal), nil
	}
	return &troupev1.Event{
		Stage: troupev1.Stage_STAGE_INITIALIZE, Time: timestamppb.Now(),
		Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{
			Text: conversation.Brief(req.Text, maxGoal), RequestId: req.RequestID, TurnId: turn.ID, Target: target, InstancesReady: int32(ready),
			ContinuesTurnId: turn.Continues, Answers: answers, Parent: req.Parent, Profile: req.profile(), Attachments: blobs(req.Files),
			From: req.From.proto(),
		}},
	}
}

// ended is the last event of a closed turn.
func ended(turn session.Turn) *troupev1.Event {
	result := &troupev1.TurnResult{Outcome: memorywire.OutcomeToProto(turn.Outcome), Usage: wire.UsageToProto(usage(turn.Steps))}
	switch turn.Outcome {
	case session.OutcomeCompleted, session.OutcomeInputRequired, session.OutcomeAuthRequired:
		if n := len(turn.Steps); n > 0 {
			last := turn.Steps[n-1]
			result.Text, result.Agent, result.Confidence = last.Text, last.Agent, last.Confidence
		}
		result.Pending = wire.PendingToProto(waiting(turn))
	default:
		if turn.Failure != nil {
			result.Failure = grpcfailure.ToProto(turn.Failure)
		}
	}
	return &troupev1.Event{
		Stage: stages[turn.Outcome], Time: timestamppb.Now(),
		Payload: &troupev1.Event_TurnResult{TurnResult: result},
	}
}

// waiting are the calls with which a turn ended because they wait.
func waiting(turn session.Turn) []execution.Pending {
	if n := len(turn.Steps); n > 0 && turn.Outcome.Asks() {
		return turn.Steps[n-1].Pending
	}
	return nil
}

func setDuration(last *troupev1.Event, d time.Duration) {
	last.GetTurnResult().Duration = durationpb.New(d)
}

func usage(steps []execution.Result) execution.Usage {
	var sum execution.Usage
	for _, r := range steps {
		if !r.Inherited { // which another turn has used
			sum = sum.Add(r.Usage)
		}
	}
	return sum
}
