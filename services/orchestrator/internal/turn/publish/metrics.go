package publish

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/telemetry/structured"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// turnMetrics holds the metrics that are derived from the published events (contract OC-21, OC-31).
type turnMetrics struct {
	steps        metric.Int64Counter
	stepDuration metric.Float64Histogram
	retries      metric.Int64Counter
	decisions    metric.Int64Counter
	tools        metric.Int64Counter
	turnSteps    metric.Int64Histogram
	budget       metric.Float64Histogram
}

// Bucket boundaries of histograms. The defaults of OpenTelemetry assume milliseconds.
var (
	seconds = metric.WithExplicitBucketBoundaries(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)
	counts  = metric.WithExplicitBucketBoundaries(0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50)
	parts   = metric.WithExplicitBucketBoundaries(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
)

func newTurnMetrics(meter metric.Meter) (*turnMetrics, error) {
	var errs []error
	counter := func(name, says string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithDescription(says))
		errs = append(errs, err)
		return c
	}
	s := &turnMetrics{
		steps:     counter("troupe.steps", "Steps that ended, by outcome: successful or failed (OC-21)."),
		retries:   counter("troupe.steps.retries", "Attempts that were begun in the place of a lost one (OC-21)."),
		decisions: counter("troupe.routing.decisions", "Routing decisions, by what they are about and strategy (OC-21)."),
		tools:     counter("troupe.tool.calls", "Tool calls that ended, by status (OC-31)."),
	}
	var err error
	s.stepDuration, err = meter.Float64Histogram("troupe.step.duration", metric.WithUnit("s"), seconds,
		metric.WithDescription("From dispatch to result; its sum by its count is the average (OC-21)."))
	errs = append(errs, err)
	s.turnSteps, err = meter.Int64Histogram("troupe.turn.steps", counts, metric.WithDescription("Steps of a turn (OC-31)."))
	errs = append(errs, err)
	s.budget, err = meter.Float64Histogram("troupe.turn.budget", parts,
		metric.WithDescription("The part of its budget that a turn used, 1 for all of it, by what of: its steps, its time, and each kind of its limits (OC-31)."))
	return s, errors.Join(append(errs, err)...)
}

// Observe counts and logs a published event.
func (w *Writer) Observe(ctx context.Context, e *troupev1.Event) {
	w.metrics.count(ctx, e, w.turn.MaxSteps)
	defer w.warnBudget(ctx, e)
	for _, happened := range w.translation.Translate(e) {
		happened.UserID, happened.Profile = w.turn.Request.User, w.turn.Request.ProfileOrDefault()
		if err := structured.Emit(ctx, w.log, happened); err != nil {
			w.log.Error("an event could not be logged", zap.Error(err))
		}
	}
	if r := e.GetTurnResult(); r != nil && w.turn.Timeout > 0 {
		w.metrics.budget.Record(ctx, r.GetDuration().AsDuration().Seconds()/w.turn.Timeout.Seconds(), metric.WithAttributes(attribute.String("of", "time")))
	}
	if r := e.GetTurnResult(); r != nil {
		used := wire.UsedFromProto(r.GetUsed())
		for _, k := range budget.Kinds() {
			if limit := w.turn.Allowance.Limits.Get(k); limit > 0 {
				w.metrics.budget.Record(ctx, float64(used.Get(k))/float64(limit), metric.WithAttributes(attribute.String("of", string(k))))
			}
		}
	}
}

func (t *turnMetrics) count(ctx context.Context, e *troupev1.Event, maxSteps int) {
	label := func(key, value, prefix string) attribute.KeyValue {
		return attribute.String(key, strings.ToLower(strings.TrimPrefix(value, prefix)))
	}
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_RoutingDecision:
		d := p.RoutingDecision
		t.decisions.Add(ctx, 1, metric.WithAttributes(
			label("type", d.GetType().String(), "DECISION_TYPE_"), label("strategy", d.GetStrategy().String(), "ROUTING_STRATEGY_")))
	case *troupev1.Event_StepStarted:
		c := p.StepStarted.GetChoice()
		t.decisions.Add(ctx, 1, metric.WithAttributes(label("type", c.GetType().String(), "DECISION_TYPE_"), attribute.String("strategy", c.GetStrategy())))
		if e.GetAttempt() > 1 {
			t.retries.Add(ctx, 1)
		}
	case *troupev1.Event_StepFinished:
		outcome := "successful"
		if p.StepFinished.GetResult().GetFailure() != nil {
			outcome = "failed"
		}
		by := metric.WithAttributes(attribute.String("outcome", outcome))
		t.steps.Add(ctx, 1, by)
		if d := p.StepFinished.GetDuration(); d != nil { // otherwise the owner that published it did not see the step begin
			t.stepDuration.Record(ctx, d.AsDuration().Seconds(), by)
		}
	case *troupev1.Event_ToolCallFinished:
		t.tools.Add(ctx, 1, metric.WithAttributes(label("status", p.ToolCallFinished.GetStatus().String(), "TOOL_STATUS_")))
	case *troupev1.Event_TurnResult:
		steps := p.TurnResult.GetMetrics().GetTotalSteps()
		t.turnSteps.Record(ctx, int64(steps))
		t.budget.Record(ctx, float64(steps)/float64(maxSteps), metric.WithAttributes(attribute.String("of", "steps")))
	}
}
