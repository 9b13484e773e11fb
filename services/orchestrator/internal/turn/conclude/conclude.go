// Package conclude ends turns: it closes the turn in the memory service, and then ends its trace with the last
// event. It also ends the traces of closed turns whose owners were lost.
package conclude

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// Timeout bounds the time for closing a turn and storing its last event.
const Timeout = 30 * time.Second

// Closer ends turns. Safe for concurrent use.
type Closer struct {
	publisher *publish.Publisher
	telemetry *telemetry.Telemetry

	turns       metric.Int64Counter
	duration    metric.Float64Histogram
	pending     metric.Int64Counter
	quarantined metric.Int64Counter
}

// durationBuckets are the bucket boundaries of the histogram of turn durations.
var durationBuckets = metric.WithExplicitBucketBoundaries(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)

// New returns a closer.
func New(p *publish.Publisher, t *telemetry.Telemetry) (*Closer, error) {
	meter := t.Metrics.Meter("troupe/orchestrator")
	turns, turnsErr := meter.Int64Counter("troupe.turns", metric.WithDescription("Turns that ended, by outcome."))
	duration, durationErr := meter.Float64Histogram("troupe.turn.duration", metric.WithUnit("s"), durationBuckets,
		metric.WithDescription("From admission to result."))
	pending, pendingErr := meter.Int64Counter("troupe.calls.pending",
		metric.WithDescription("Tool calls that a turn ended with because they need external input, by what they need."))
	quarantined, quarantinedErr := meter.Int64Counter("troupe.turns.quarantined",
		metric.WithDescription("Turns that took down every worker or orchestrator that had them, and are never run again (F22)."))
	return &Closer{publisher: p, telemetry: t, turns: turns, duration: duration, pending: pending, quarantined: quarantined},
		errors.Join(turnsErr, durationErr, pendingErr, quarantinedErr)
}

// Turn is a turn that ends.
type Turn struct {
	Request    request.Request
	Turn       session.Turn
	Target     string
	EntryAgent string // first agent of the workflow (empty means the first agent of the published plan)
	Began      time.Time
	Lease      *lease.Lease      // nil when the turn is closed already
	Permit     *admission.Permit // nil when the turn is closed already
	Events     *publish.Writer
	// LengthWarning returns the warning that the closed turn has made its session too long (nil or an empty text means
	// that there is none).
	LengthWarning func(closed session.Turn) (reason, text string)
	// Ended is called with the closed turn once its last event is stored (nil calls nothing).
	Ended func(closed session.Turn)
}

// Outcome is what running a turn produced: its results, or the reason why there is no answer.
type Outcome struct {
	Results []execution.Result     // results of its steps, in order
	History []conversation.Message // the window of the session, followed by the messages of the steps
	Err     error                  // why there is no answer (nil when the last step has closed the turn)
	CloseAs session.Outcome        // outcome when Err is set: failed or cancelled
	Waits   bool                   // whether the turn ends because calls of branches wait
}

// Close closes the turn, and then its trace. The order is fixed: the history is committed, the session is ready,
// the last event is durable, and only then is the event sent (C-37). Close fails when the turn stays open. Its
// trace then has no end, and the same request takes the turn over after its lease has expired.
func (c *Closer) Close(ctx context.Context, t Turn, o Outcome) (broken error) {
	defer panics.Recover("turn", &broken)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	t.Permit.ReleaseChild()
	if o.Err == nil && !o.Waits {
		c.closeAnswered(ctx, t, o)
		return nil
	}
	closed, err := closeTurn(ctx, t, o)
	if o.Err == nil && failure.Is(err, failure.UserInvalidInput, failure.TurnNotOpen) { // the results cannot be stored
		o.Err = err
		closed, err = closeTurn(ctx, t, o)
	}
	if failure.Is(err, failure.SessionDeleted) { // the turn was deleted with its session
		closed = t.Turn
		closed.Outcome, closed.Failure = session.OutcomeFailed, publish.NewTurnFailure(t.Events, t.Turn.Trace, err)
		c.endTrace(ctx, t, o, closed)
		return nil
	}
	if err != nil {
		return errors.Join(o.Err, err)
	}
	if err := t.Events.IgnoreFullTrace(t.Events.PriorEvents().WriteMissingSteps(ctx, closed.Steps)); err != nil {
		return errors.Join(o.Err, err)
	}
	if closed.Outcome == session.OutcomeCompleted || closed.Outcome.NeedsInput() {
		o.Results = closed.Steps // work ended after the last commit, so the turn has its answer
		c.closeAnswered(ctx, t, o)
		return nil
	}
	if o.Err == nil {
		o.Err = failure.Newf(failure.TurnNotOpen, "turn", "the turn was closed as %s while it ended", closed.Outcome)
	}
	c.telemetry.Panics.Record(ctx, o.Err)
	t.Events.Logger().Warn("turn without an answer",
		zap.String("trace", t.Turn.Trace), zap.String("stage", publish.FailureStage(t.Events, o.Err)), zap.Error(o.Err))
	warnIfLong(ctx, t, closed)
	c.endTrace(ctx, t, o, closed)
	return nil
}

// closeTurn closes a turn in the memory service that no commit has closed.
func closeTurn(ctx context.Context, t Turn, o Outcome) (session.Turn, error) {
	if o.Err != nil {
		return t.Lease.Fail(ctx, o.CloseAs, publish.NewTurnFailure(t.Events, t.Turn.Trace, o.Err))
	}
	var uncommitted []execution.Result
	for _, r := range o.Results {
		if !r.Inherited && (r.Failure != nil || len(r.Pending) > 0) {
			uncommitted = append(uncommitted, r)
		}
	}
	return t.Lease.Suspend(ctx, uncommitted)
}

// closeAnswered ends the trace of a turn whose last commit has already closed the turn.
func (c *Closer) closeAnswered(ctx context.Context, t Turn, o Outcome) {
	closed := t.Turn
	closed.Steps = o.Results
	closed.Outcome = session.OutcomeCompleted
	if asking := resultsThatAsk(o.Results); len(asking) > 0 {
		closed.Outcome = session.InputOutcome(asking...)
	}
	warnIfLong(ctx, t, closed)
	if err := publishTotals(ctx, t.Events, o.Results); err != nil {
		t.Events.Logger().Warn("no aggregate event", zap.String("trace", t.Turn.Trace), zap.Error(err))
	}
	c.endTrace(ctx, t, o, closed)
}

// endTrace ends the trace of a closed turn. Once the last event is stored, it counts and logs the turn.
func (c *Closer) endTrace(ctx context.Context, t Turn, o Outcome, closed session.Turn) {
	duration := time.Since(t.Began)
	last := lastEvent(t.Events, closed, duration)
	state := finalState(t, o, last)
	last.GetTurnResult().Coordination = state.Proto()
	if err := c.publisher.Close(ctx, t.Events, last); err != nil {
		return // Close has logged it
	}
	if t.Ended != nil {
		t.Ended(closed)
	}
	c.countTurn(ctx, closed, duration)
	t.Events.Observe(ctx, last)
	logFinalState(ctx, t, state)
	c.recordQuarantine(ctx, t, last.GetTurnResult())
	t.Events.Logger().Info("turn ended", zap.String("trace", t.Turn.Trace), zap.String("session", t.Request.Session), zap.Int("turn", t.Turn.Number),
		zap.String("outcome", string(closed.Outcome)), zap.Int("steps", len(o.Results)), zap.Duration("duration", duration))
}

// warnIfLong publishes a warning if the turn has made its session too long, in the stage that the turn has reached.
func warnIfLong(ctx context.Context, t Turn, closed session.Turn) {
	if t.LengthWarning == nil {
		return
	}
	reason, text := t.LengthWarning(closed)
	if text == "" {
		return
	}
	err := t.Events.Write(ctx, max(t.Events.EventLog().Stage(), troupev1.Stage_STAGE_ROUTE), &troupev1.Event{
		Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: reason, Message: text}},
	})
	if err = t.Events.IgnoreFullTrace(err); err != nil {
		t.Events.Logger().Warn("no warning about a long session", zap.String("trace", closed.Trace), zap.Error(err))
	}
}

func (c *Closer) countTurn(ctx context.Context, closed session.Turn, d time.Duration) {
	for _, p := range pendingCalls(closed) {
		c.pending.Add(ctx, 1, metric.WithAttributes(attribute.String("needs", string(p.Needs))))
	}
	by := metric.WithAttributes(attribute.String("outcome", string(closed.Outcome)))
	c.turns.Add(ctx, 1, by)
	c.duration.Record(ctx, d.Seconds(), by)
}

// recordQuarantine logs and counts a turn that crashed every worker or orchestrator that ran it (guarantee F22).
// The turn is closed and never runs again, even when the same request is repeated. An operator has to find the
// cause.
func (c *Closer) recordQuarantine(ctx context.Context, t Turn, result *troupev1.TurnResult) {
	if !trace.IsQuarantined(result) {
		return
	}
	c.quarantined.Add(ctx, 1)
	why := grpcfailure.FromProto(result.GetFailure())
	t.Events.Logger().Error("turn quarantined: it took down all that it was given to; see docs/operate.md",
		zap.String("trace", t.Turn.Trace), zap.String("session", t.Request.Session), zap.Int("turn", t.Turn.Number),
		zap.String("target", t.Target), zap.String("instances", why.Facts["instances"]), zap.Error(why))
}
