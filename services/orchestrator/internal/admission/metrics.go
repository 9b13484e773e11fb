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

// admissionKind is how a turn was admitted. It is a metric label.
type admissionKind string

const (
	admittedAtOnce    admissionKind = "at_once"
	admittedFromQueue admissionKind = "queued"
	admittedByForce   admissionKind = "continued" // by ForceAdmit, for a turn that continues earlier work
)

// maxTenantLabels is how many tenants get a metric label of their own. The others share one label. So callers that
// invent tenant names cannot exhaust the memory of the metrics backend.
const maxTenantLabels = 32

const otherTenantsLabel = "other"

// metrics holds the instruments of a Controller. Safe for concurrent use.
type metrics struct {
	admitted, rejected metric.Int64Counter
	queueTime          metric.Float64Histogram

	mu              sync.Mutex
	labelledTenants map[string]bool
}

func newMetrics(meter metric.Meter, g *Controller) (*metrics, error) {
	if meter == nil {
		meter = noop.Meter{}
	}
	in, admittedErr := meter.Int64Counter("troupe.admission.admitted",
		metric.WithDescription("Turns that were admitted, by tenant and how: at_once, queued, continued."))
	out, rejectedErr := meter.Int64Counter("troupe.admission.refused",
		metric.WithDescription("Turns that were rejected with OVERLOADED, by tenant and reason."))
	wait, waited := meter.Float64Histogram("troupe.admission.queue.time", metric.WithUnit("s"),
		metric.WithDescription("How long queued turns waited until they were admitted."),
		metric.WithExplicitBucketBoundaries(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	_, running := meter.Int64ObservableGauge("troupe.admission.turns", metric.WithDescription("Turns that run now."),
		metric.WithInt64Callback(g.gaugeCallback(func() int { return g.runningTurns })))
	_, limit := meter.Int64ObservableGauge("troupe.admission.limit", metric.WithDescription("How many turns may run at once."),
		metric.WithInt64Callback(g.gaugeCallback(g.turnLimit)))
	_, waiting := meter.Int64ObservableGauge("troupe.admission.waiting", metric.WithDescription("Callers in the queue."),
		metric.WithInt64Callback(g.gaugeCallback(func() int { return g.waitingCallers })))
	return &metrics{admitted: in, rejected: out, queueTime: wait, labelledTenants: map[string]bool{}},
		errors.Join(admittedErr, rejectedErr, waited, running, limit, waiting)
}

// gaugeCallback returns a metric callback that reads a value under the lock of the Controller.
func (g *Controller) gaugeCallback(read func() int) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		o.Observe(int64(read()))
		return nil
	}
}

func (m *metrics) recordAdmitted(tenant string, by admissionKind, waited time.Duration) {
	m.admitted.Add(context.Background(), 1, metric.WithAttributes(m.tenantAttribute(tenant), attribute.String("how", string(by))))
	if by == admittedFromQueue {
		m.queueTime.Record(context.Background(), waited.Seconds())
	}
}

func (m *metrics) recordRejected(tenant string, reason reason) {
	m.rejected.Add(context.Background(), 1, metric.WithAttributes(m.tenantAttribute(tenant), attribute.String("reason", string(reason))))
}

// tenantAttribute returns the metric label of a tenant. Tenants after the first maxTenantLabels get the shared
// label.
func (m *metrics) tenantAttribute(tenant string) attribute.KeyValue {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.labelledTenants[tenant] {
		if len(m.labelledTenants) == maxTenantLabels {
			return attribute.String("tenant", otherTenantsLabel)
		}
		m.labelledTenants[tenant] = true
	}
	return attribute.String("tenant", tenant)
}
