package trace

import (
	"context"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Audit finds the decisions that were made (contract OC-32, docs/adr/0021). It is written with the
// events: appending an event that has a decision makes the decision findable.
type Audit interface {
	// Decisions returns at most q.Limit decisions of a tenant, newest first. The decisions of one trace
	// are kept as long as the trace; of all traces, the newest 10,000 of each type are kept.
	Decisions(ctx context.Context, tenant string, q DecisionQuery) ([]*troupev1.Decision, error)
}

// DecisionQuery selects decisions.
type DecisionQuery struct {
	Trace string                // only decisions of this trace (empty means all)
	Type  troupev1.DecisionType // only decisions of this type (unspecified means all)
	Limit int                   // above 0
}

// Matches reports whether a decision has the type that is asked for.
func (q DecisionQuery) Matches(d *troupev1.Decision) bool {
	return d != nil && (q.Type == troupev1.DecisionType_DECISION_TYPE_UNSPECIFIED || q.Type == d.GetType())
}
