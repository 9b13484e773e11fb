package trace

import (
	"context"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Audit tells which decisions were made (contract OC-32, docs/adr/0021). It is written with
// the events: who appends an event that tells of a decision has it found.
type Audit interface {
	// Decisions returns at most q.Limit decisions of a tenant, newest first. Those of a trace
	// are there as long as the trace is; of all traces, the newest 10,000 of each type.
	Decisions(ctx context.Context, tenant string, q DecisionQuery) ([]*troupev1.Decision, error)
}

// DecisionQuery says which decisions are wanted.
type DecisionQuery struct {
	Trace string                // empty: of all traces
	Type  troupev1.DecisionType // unspecified: all
	Limit int                   // above 0
}

// Wants reports whether a decision is of the type that is asked for.
func (q DecisionQuery) Wants(d *troupev1.Decision) bool {
	return d != nil && (q.Type == troupev1.DecisionType_DECISION_TYPE_UNSPECIFIED || q.Type == d.GetType())
}
