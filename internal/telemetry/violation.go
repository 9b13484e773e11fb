package telemetry

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/pkg/event"
)

// Violations records rejected writes to state of another owner. It records them in the counter
// troupe.ownership.violations, the audit log and the log. It is safe for concurrent use.
type Violations struct {
	count     metric.Int64Counter
	telemetry *Telemetry
}

// Violations returns a recorder of ownership violations.
func (t *Telemetry) Violations() (*Violations, error) {
	count, err := t.Metrics.Meter("troupe/ownership").Int64Counter("troupe.ownership.violations",
		metric.WithDescription("Rejected writes to state of another owner, by the owner of the state and the role of the caller."))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return &Violations{count, t}, nil
}

// Record records a violation by a caller with the given role. The counter has the attributes owner and actor (the
// role). It has no attribute for the key, because there is no limit to the number of keys. A nil Violations
// records nothing.
func (v *Violations) Record(ctx context.Context, role string, of event.OwnershipViolation, facts map[string]string) {
	if v == nil {
		return
	}
	v.count.Add(ctx, 1, metric.WithAttributes(attribute.String("owner", string(of.Owner)), attribute.String("actor", role)))
	known := map[string]string{"owner": string(of.Owner)}
	fields := []zap.Field{zap.String("key", of.Key), zap.String("owner", string(of.Owner)), zap.String("actor", of.Actor), zap.String("operation",
		of.Operation)}
	for name, fact := range facts {
		known[name] = fact
		fields = append(fields, zap.String(name, fact))
	}
	v.telemetry.Audit.Record(audit.Entry{Kind: audit.Violation, Actor: of.Actor, Action: of.Operation, Object: of.Key, Result: "state_violation", Facts: known})
	v.telemetry.Log.Warn("a write to state of another owner was rejected; nothing changed", fields...)
}
