package turn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// maxAttempts is how many instances may lose a step before the turn fails: a step that
// takes its workers down must not go through all of them (guarantees F1, F22).
const maxAttempts = 3

// attempt is a step that is being done, by one instance after the other.
type attempt struct {
	position
	task    cursor.Task
	began   time.Time
	retries int                   // attempts that failed, and were followed by another
	losses  []*dispatch.LostError // attempts that were lost
	lost    *dispatch.LostError   // the last attempt, until the turn is taken back from it
	result  execution.Result      // once it has ended
	part    budget.Amounts        // of what is left of the budget, for all attempts from now on
	before  budget.Amounts        // that were used when it got that
}

// attempt begins a step. Whoever takes a turn over cannot know whether those that come next
// were begun before: they may have journals, as every step beyond its first attempt.
func (t *turn) attempt(task cursor.Task) *attempt {
	a := &attempt{task: task, began: time.Now(), position: position{number: task.Number, attempt: 1, agent: task.Decision.Step.Agent}}
	if t.resumed {
		a.attempt = max(2, int(t.told.Started[task.Number].GetAttempt())+1)
	}
	return a
}

// attempts has steps done: by instances that bring them to an end, or by ones that were lost
// behind their commit.
//
// All steps of a round have one epoch, so that an attempt that was lost cannot be fenced while
// the others run. When they have ended the turn is taken back once, and what was not committed
// is given to others.
func (t *turn) attempts(work, ctx context.Context, course *cursor.Cursor, open []*attempt) error {
	t.resumed = t.resumed && len(open) == 0
	for len(open) > 0 {
		t.allot(open)
		if err := t.atOnce(work, ctx, course, open); err != nil {
			return t.fence(work, open, err)
		}
		open = slices.DeleteFunc(slices.Clone(open), func(a *attempt) bool { return a.lost == nil })
		if len(open) == 0 {
			return nil
		}
		committed, err := t.reclaim(work, open)
		if err != nil {
			return err
		}
		var again []*attempt
		for _, a := range open {
			ended, err := t.replaced(ctx, a, committed[a.number])
			if err != nil {
				return err
			}
			if !ended {
				again = append(again, a)
			}
		}
		open = again
	}
	return nil
}

// atOnce has steps done side by side, and returns when none runs any more. When one fails in a
// way that the turn does not survive, the others are stopped.
func (t *turn) atOnce(work, ctx context.Context, course *cursor.Cursor, open []*attempt) error {
	if len(open) == 1 {
		return t.execute(work, ctx, open[0])
	}
	round, abort := context.WithCancelCause(work)
	defer abort(nil)
	var beside sync.WaitGroup
	for _, a := range open {
		beside.Go(func() {
			panics.Guard("turn", abort, func() {
				err := t.execute(round, ctx, a)
				if err == nil && a.lost == nil {
					err = course.TurnError(a.task, a.result)
				}
				if err != nil {
					abort(err)
				}
			})
		})
	}
	beside.Wait()
	return context.Cause(round)
}

// execute gives a step to an instance, and to the next when it failed and is to be tried again.
// It returns when the step has ended, or the attempt was lost.
func (t *turn) execute(work, ctx context.Context, a *attempt) (err error) {
	defer panics.Recover("turn", &err)
	step := a.task.Decision.Step
	work, done := t.unlessShut(work, a.agent)
	defer done()
	for {
		req := t.stepRequest(work, a)
		if err := t.credit(work, req); err != nil {
			return err
		}
		result, err := t.Dispatcher.WithPolicy(t.policy(a.number, step.Instances)).WithRequest(t.inquiry(step)).Execute(work, req, t.avoided(a), t.equipped(ctx, a))
		if err := t.trespassed(ctx, &a.position, result, err); err != nil {
			return err
		}
		if lost, ok := errors.AsType[*dispatch.LostError](err); ok {
			a.lost, a.losses = lost, append(a.losses, lost)
			a.instance = lost.Instance.ID // which may not have come to say that it took the step
			t.lost.Add(ctx, 1, metric.WithAttributes(attribute.String("agent", a.agent)))
			t.log.Warn("attempt lost", zap.String("trace", t.turn.Trace), zap.Int("step", a.number), zap.Int("attempt", a.attempt), zap.Error(err))
			return nil
		}
		why := grpcfailure.FromProto(result.GetFailure())
		if out := shut(work); out != nil && (err != nil || why != nil) {
			return out
		}
		if err != nil || why == nil || !step.OnError.ShouldRetry(why, a.retries) {
			return t.concluded(ctx, a, result, unserved(err, a.losses))
		}
		t.log.Warn("step failed; it is tried again", zap.String("trace", t.turn.Trace), zap.Int("step", a.number), zap.Int("attempt", a.attempt), zap.Error(why))
		if err := t.reset(ctx, &a.position, why, result.GetUsed()); err != nil {
			return err
		}
		if err := retry.Sleep(work, step.OnError.Pause(a.retries)); err != nil {
			return cmp.Or(shut(work), err)
		}
		a.retries++
		a.attempt, a.instance, a.violated = a.attempt+1, "", nil
	}
}

// replaced ends an attempt that was lost, now that its worker can write no more. It is false
// when the step is to be given to another.
func (t *turn) replaced(ctx context.Context, a *attempt, committed *troupev1.StepResult) (ended bool, err error) {
	lost := a.lost
	a.lost = nil
	switch {
	case committed != nil:
		err = errors.Join(t.tellAgain(ctx, &a.position, lost, committed), t.concluded(ctx, a, committed, nil))
	case lost.ContractViolation:
		err = t.concluded(ctx, a, nil, lost) // which is a failed step
	case len(a.losses) == maxAttempts:
		err = t.concluded(ctx, a, nil, exhausted(&a.position, a.losses))
	default:
		err = t.reset(ctx, &a.position, lost.Failure, nil)
		a.attempt, a.instance, a.violated = a.attempt+1, "", nil
		return false, err
	}
	return true, err
}

// reset says that the text of an attempt is void, and what it used when it said so itself.
func (t *turn) reset(ctx context.Context, at *position, why error, used *troupev1.BudgetUse) error {
	return t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_TextRetracted{TextRetracted: &troupev1.TextRetracted{
		Failure: grpcfailure.ToProto(why), Used: used,
	}}})
}

// tellAgain shows the text of a step whose worker was lost behind its commit: nobody knows
// how much of it was lost with the stream.
func (t *turn) tellAgain(ctx context.Context, at *position, lost *dispatch.LostError, result *troupev1.StepResult) error {
	if err := t.reset(ctx, at, lost.Failure, nil); err != nil || result.GetText() == "" {
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
		Chosen: func(d selection.Decision) error {
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
			if v := e.GetOwnershipViolation(); v != nil {
				at.violated = append(at.violated, v.GetKey())
			}
			return t.emitAt(ctx, at, e)
		},
	}
}

// choice is why an instance gets a step, as clients see it.
func choice(d selection.Decision) *troupev1.InstanceChoice {
	out := &troupev1.InstanceChoice{
		Strategy: string(d.Strategy), Reason: d.Reason, Confidence: d.Confidence, Fallback: d.Fallback, Alternatives: d.Alternatives,
		Type: choiceType(d.Type), Counter: d.Input.Counter,
	}
	for _, r := range d.Rejected {
		out.Rejected = append(out.Rejected, &troupev1.RejectedInstance{InstanceId: r.ID, Why: r.Why.String(), Detail: r.Detail})
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

// lostInstances are those that shall not have the step again.
func lostInstances(losses []*dispatch.LostError) (all []registry.Instance) {
	for _, l := range losses {
		if !l.MemoryOutage {
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
