package turn

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/balance"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// maxAttempts is how many instances may lose a step before the turn fails: a step that
// takes its workers down must not go through all of them (guarantees F1, F22).
const maxAttempts = 3

// firstAttempt is the number of a step's first attempt by this owner. Whoever takes a turn
// over cannot know whether the step that comes next was begun before: it may have a journal,
// as every step beyond its first attempt.
func (t *turn) firstAttempt(number int) int {
	if !t.resumed {
		return 1
	}
	t.resumed = false
	if int(t.told.Started.GetStep()) != number {
		return 2
	}
	return max(2, int(t.told.Started.GetAttempt())+1)
}

// execute has a step done: by an instance that brings it to an end, or by one that was lost
// behind its commit.
func (t *turn) execute(work, ctx context.Context, at *position, step workflow.Step) (*troupev1.StepResult, error) {
	var losses []*dispatch.LostError
	for {
		result, err := t.Dispatcher.With(t.policy(at.number, step.Instances)).Execute(work, t.stepRequest(at, step), instances(losses), t.handler(ctx, at))
		lost, ok := errors.AsType[*dispatch.LostError](err)
		if !ok {
			return result, unserved(err, losses)
		}
		losses = append(losses, lost)
		at.instance = lost.Instance.ID // which may not have come to say that it took the step
		t.lost.Add(ctx, 1, metric.WithAttributes(attribute.String("agent", at.agent)))
		t.log.Warn("attempt lost", zap.String("trace", t.turn.Trace), zap.Int("step", at.number), zap.Int("attempt", at.attempt), zap.Error(err))
		if result, err = t.reclaim(work, at.number); err != nil {
			return nil, err
		}
		if result != nil {
			return result, t.tellAgain(ctx, at, lost, result)
		}
		if lost.Breach {
			return nil, lost // which is a failed step
		}
		if len(losses) == maxAttempts {
			return nil, exhausted(at, losses)
		}
		if err := t.reset(ctx, at, lost); err != nil {
			return nil, err
		}
		at.attempt, at.instance = at.attempt+1, ""
	}
}

// reset says that the text of a lost attempt is void.
func (t *turn) reset(ctx context.Context, at *position, lost *dispatch.LostError) error {
	return t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_PartReset{PartReset: &troupev1.PartReset{
		Failure: failure.ToProto(lost.Failure),
	}}})
}

// tellAgain shows the text of a step whose worker was lost behind its commit: nobody knows
// how much of it was lost with the stream.
func (t *turn) tellAgain(ctx context.Context, at *position, lost *dispatch.LostError, result *troupev1.StepResult) error {
	if err := t.reset(ctx, at, lost); err != nil || result.GetText() == "" {
		return err
	}
	return t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: result.GetText()}}})
}

// handler shows what happens in an attempt.
func (t *turn) handler(ctx context.Context, at *position) dispatch.Handler {
	return dispatch.Handler{
		Waiting: func(agent string) error {
			return t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{
				Reason: "WAITING", Message: "no instance of agent " + agent + " takes the step yet",
			}}})
		},
		Chosen: func(d balance.Decision) error {
			at.choice = choice(d)
			return nil
		},
		Started: func(in registry.Instance) error {
			at.instance = in.ID
			return t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{
				Address: in.Address, Version: in.Version, Choice: at.choice,
			}}})
		},
		Event: func(e *troupev1.Event) error {
			if !fromWorker(e) {
				t.log.Warn("event of a worker dropped: it is not a worker's to send", zap.String("trace", t.turn.Trace), zap.String("instance", at.instance))
				return nil
			}
			return t.emitAt(ctx, at, e)
		},
	}
}

// choice is why an instance gets a step, as clients see it.
func choice(d balance.Decision) *troupev1.InstanceChoice {
	out := &troupev1.InstanceChoice{
		Strategy: string(d.Strategy), Reason: d.Reason, Confidence: d.Confidence, Fallback: d.Fallback, Alternatives: d.Alternatives,
		Type: choiceType(d.Type), Counter: d.Input.Counter,
	}
	for _, r := range d.Rejected {
		out.Rejected = append(out.Rejected, &troupev1.RejectedInstance{InstanceId: r.ID, Why: string(r.Why), Detail: r.Detail})
	}
	return out
}

// exhausted says that nobody is left to be trusted with the step.
func exhausted(at *position, losses []*dispatch.LostError) error {
	last := losses[len(losses)-1]
	return failure.Newf(failure.AttemptsExhausted, "turn", "step %d of agent %s was lost %d times; the last time: %s",
		at.number, at.agent, len(losses), failure.Plain(last)).
		With("instances", names(losses)).Because(last)
}

// unserved adds to why nobody takes a step what became of it before.
func unserved(err error, losses []*dispatch.LostError) error {
	none, ok := errors.AsType[*failure.Error](err)
	if !ok || none.Mode != failure.NoWorker || len(losses) == 0 {
		return err
	}
	none = failure.Newf(failure.NoWorker, "turn", "%s; then %s", failure.Plain(losses[len(losses)-1]), none.Message).Because(none)
	return none.With("instances", names(losses))
}

// instances are those that shall not have the step again.
func instances(losses []*dispatch.LostError) (all []registry.Instance) {
	for _, l := range losses {
		if !l.Outage {
			all = append(all, l.Instance)
		}
	}
	return all
}

func names(losses []*dispatch.LostError) string {
	var ids []string
	for _, l := range losses {
		ids = append(ids, l.Instance.ID)
	}
	return strings.Join(ids, ", ")
}
