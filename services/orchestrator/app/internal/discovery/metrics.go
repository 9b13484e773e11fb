package discovery

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// registerMetrics registers two metrics. One is how long steps have been routed without the registry (guarantee F9). The
// other is whether removals of instances are frozen because too many vanished at once (guarantee F11).
func registerMetrics(t *telemetry.Telemetry, cache *instances.Cache) error {
	meter := t.Metrics.Meter("troupe/orchestrator")
	_, stale := meter.Float64ObservableGauge("troupe.registry.staleness",
		metric.WithUnit("s"), metric.WithDescription("For how long the registry has been away; 0 while it is there."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(cache.Staleness().Seconds())
			return nil
		}))
	_, frozen := meter.Int64ObservableGauge("troupe.registry.frozen",
		metric.WithDescription("1 while many registrations vanished at once and none is removed; else 0."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			value := int64(0)
			if cache.HasFrozenRemovals() {
				value = 1
			}
			o.Observe(value)
			return nil
		}))
	return errors.Join(stale, frozen)
}
