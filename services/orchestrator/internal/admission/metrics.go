package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// route is the way in which a turn was admitted, as the metrics label it.
type route string

const (
	atOnce route = "at_once"
	queued route = "queued"
	forced route = "continued" // continues work begun earlier
)

// maxTenantLabels is how many tenants metrics name; the others share one label. So a caller
// that makes up tenants cannot exhaust the memory of the metrics backend.
const maxTenantLabels = 32

const otherTenants = "other"

// metrics are the metrics of a Controller. Safe for concurrent use.
type metrics struct {
	in, out metric.Int64Counter
	wait    metric.Float64Histogram

	mu              sync.Mutex
	labelledTenants map[string]bool
}

func newMetrics(meter metric.Meter, g *Controller) (*metrics, error) {
	if meter == nil {
		meter = noop.Meter{}
	}
	in, admitted := meter.Int64Counter("troupe.admission.admitted",
		metric.WithDescription("Turns that were admitted, by tenant and how: at_once, queued, continued."))
	out, refused := meter.Int64Counter("troupe.admission.refused", metric.WithDescription("Turns that were refused with OVERLOADED, by tenant and reason."))
	wait, waited := meter.Float64Histogram("troupe.admission.queue.time", metric.WithUnit("s"),
		metric.WithDescription("How long queued turns waited until they were admitted."),
		metric.WithExplicitBucketBoundaries(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	_, running := meter.Int64ObservableGauge("troupe.admission.turns", metric.WithDescription("Turns at once."),
		metric.WithInt64Callback(g.observe(func() int { return g.turns })))
	_, limit := meter.Int64ObservableGauge("troupe.admission.limit", metric.WithDescription("How many turns there may be at once."),
		metric.WithInt64Callback(g.observe(g.limit)))
	_, waiting := meter.Int64ObservableGauge("troupe.admission.waiting", metric.WithDescription("Callers in the queue."),
		metric.WithInt64Callback(g.observe(func() int { return g.waiting })))
	return &metrics{in: in, out: out, wait: wait, labelledTenants: map[string]bool{}},
		errors.Join(admitted, refused, waited, running, limit, waiting)
}

// observe returns a callback that reads a value under the lock of the Controller.
func (g *Controller) observe(read func() int) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		o.Observe(int64(read()))
		return nil
	}
}

func (c *metrics) recordAdmitted(tenant string, by route, waited time.Duration) {
	c.in.Add(context.Background(), 1, metric.WithAttributes(c.label(tenant), attribute.String("how", string(by))))
	if by == queued {
		c.wait.Record(context.Background(), waited.Seconds())
	}
}

func (c *metrics) recordRejected(tenant string, reason reason) {
	c.out.Add(context.Background(), 1, metric.WithAttributes(c.label(tenant), attribute.String("reason", string(reason))))
}

// label returns the name of a tenant if it is among the first maxTenantLabels, or else the shared label.
func (c *metrics) label(tenant string) attribute.KeyValue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.labelledTenants[tenant] {
		if len(c.labelledTenants) == maxTenantLabels {
			return attribute.String("tenant", otherTenants)
		}
		c.labelledTenants[tenant] = true
	}
	return attribute.String("tenant", tenant)
}
