package step

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/assignment"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/quarantine"
)

// attempt is the state of a running step and its current attempt. A retry moves it to another instance.
type attempt struct {
	assignment.Attempt
	began    time.Time
	retries  int                   // attempts that failed and were followed by another
	losses   []*dispatch.LostError // attempts that were lost
	lastLoss *dispatch.LostError   // the loss of the last attempt, until its worker is fenced
	result   execution.Result      // set when the step has ended

	choice       *troupev1.InstanceChoice // why the current instance was chosen
	violatedKeys []string                 // keys of other owners that the worker tried to write, as it reported
}

// newAttempt begins a step. After a takeover it is unknown whether an earlier owner had begun the step. The worker
// then looks for a journal, as it does for every attempt after the first.
func (t *Turn) newAttempt(task cursor.Task, conversation assignment.Conversation) *attempt {
	a := &attempt{began: time.Now(), Attempt: assignment.Attempt{
		Task: task, Conversation: conversation, Origin: publish.EventOrigin{Number: task.Number, Attempt: 1, Agent: task.Decision.Step.Agent},
	}}
	if t.IsTakenOver {
		a.Origin.Attempt = max(2, t.Events.PriorEvents().LastAttempt(task.Number)+1)
	}
	return a
}

// prepareNext resets the state for an attempt at the next instance.
func (a *attempt) prepareNext() {
	a.Origin.Attempt, a.Origin.Instance, a.violatedKeys = a.Origin.Attempt+1, "", nil
}

// execute sends a step to an instance. While the step fails and may be retried, it sends it to the next instance.
// It returns when the step has ended or the attempt was lost.
func (t *Turn) execute(work, ctx context.Context, a *attempt) (err error) {
	defer panics.Recover("turn", &err)
	step := a.Task.Decision.Step
	work, done := quarantine.WatchAgent(work, t.services.Instances, a.Origin.Agent)
	defer done()
	for {
		req, err := t.assignment.StepRequest(work, a.Attempt)
		if err != nil {
			return err
		}
		instances := t.services.Dispatcher.WithPolicy(t.assignment.InstancePolicy(a.Origin.Number,
			step.Instances)).WithRequest(t.assignment.RoutingRequest(step))
		result, err := instances.Execute(work, req, t.assignment.InstancesToAvoid(a.Attempt, instancesAtFault(a.losses)), t.newHandler(ctx, a))
		if err := t.publishViolation(ctx, a, result, err); err != nil {
			return err
		}
		if lost, ok := errors.AsType[*dispatch.LostError](err); ok {
			t.recordLoss(ctx, a, lost)
			return nil
		}
		why := grpcfailure.FromProto(result.GetFailure())
		if q := quarantine.Cause(work); q != nil && (err != nil || why != nil) {
			return q
		}
		if err != nil || why == nil || !step.OnError.ShouldRetry(why, a.retries) {
			return t.publishResult(ctx, a, result, withLastLoss(err, a.losses))
		}
		t.Events.Logger().Warn("step failed; it is tried again",
			zap.String("trace", t.Events.TraceID()), zap.Int("step", a.Origin.Number), zap.Int("attempt", a.Origin.Attempt), zap.Error(why))
		if err := t.Events.Retract(ctx, a.Origin, why, result.GetUsed()); err != nil {
			return err
		}
		if err := retry.Sleep(work, step.OnError.Pause(a.retries)); err != nil {
			return cmp.Or(quarantine.Cause(work), err)
		}
		a.retries++
		a.prepareNext()
	}
}

func (t *Turn) recordLoss(ctx context.Context, a *attempt, lost *dispatch.LostError) {
	a.lastLoss, a.losses = lost, append(a.losses, lost)
	a.Origin.Instance = lost.Instance.ID // the instance may have been lost before it accepted the step
	t.services.lost.Add(ctx, 1, metric.WithAttributes(attribute.String("agent", a.Origin.Agent)))
	t.Events.Logger().Warn("attempt lost",
		zap.String("trace", t.Events.TraceID()), zap.Int("step", a.Origin.Number), zap.Int("attempt", a.Origin.Attempt), zap.Error(lost))
}

// endLostAttempt handles a lost attempt after its worker was fenced. It returns true when the step has ended, and
// false when another instance must run it.
func (t *Turn) endLostAttempt(ctx context.Context, a *attempt, committed *troupev1.StepResult) (ended bool, err error) {
	lost := a.lastLoss
	a.lastLoss = nil
	switch {
	case committed != nil:
		err = errors.Join(t.Events.ReplaceText(ctx, a.Origin, lost.Failure, committed.GetText()), t.publishResult(ctx, a, committed, nil))
	case lost.ViolatesContract:
		err = t.publishResult(ctx, a, nil, lost) // the agent broke its contract: the step has failed
	case len(a.losses) == assignment.MaxAttempts:
		err = t.publishResult(ctx, a, nil, newAttemptsExhaustedError(a.Origin, a.losses))
	default:
		err = t.Events.Retract(ctx, a.Origin, lost.Failure, nil)
		a.prepareNext()
		return false, err
	}
	return true, err
}

// newAttemptsExhaustedError returns the failure of a step that was lost too often.
func newAttemptsExhaustedError(at publish.EventOrigin, losses []*dispatch.LostError) error {
	last := losses[len(losses)-1]
	return failure.Newf(failure.AttemptsExhausted, "turn", "step %d of agent %s was lost %d times; the last time: %s",
		at.Number, at.Agent, len(losses), failure.PlainMessage(last)).
		With("instances", instanceIDs(losses)).Because(last)
}

// withLastLoss adds the last loss of a step to a failure that no instance takes the step.
func withLastLoss(err error, losses []*dispatch.LostError) error {
	none, ok := errors.AsType[*failure.Error](err)
	if !ok || none.Mode != failure.NoWorker || len(losses) == 0 {
		return err
	}
	none = failure.Newf(failure.NoWorker, "turn", "%s; then %s", failure.PlainMessage(losses[len(losses)-1]), none.Message).Because(none)
	return none.With("instances", instanceIDs(losses))
}

func instanceIDs(losses []*dispatch.LostError) string {
	var ids []string
	for _, l := range losses {
		ids = append(ids, l.Instance.ID)
	}
	return strings.Join(ids, ", ")
}

// instancesAtFault returns the instances that lost the step by their own fault. An outage of the memory service is
// not their fault.
func instancesAtFault(losses []*dispatch.LostError) (all []registry.Instance) {
	for _, l := range losses {
		if !l.IsMemoryOutage {
			all = append(all, l.Instance)
		}
	}
	return all
}
