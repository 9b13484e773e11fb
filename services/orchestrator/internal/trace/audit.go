package trace

import (
	"context"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// DecisionIndex finds the routing decisions of a tenant (contract OC-32, docs/adr/0021). It needs no separate
// write: appending an event that has a decision also indexes the decision.
type DecisionIndex interface {
	// Decisions returns at most q.Limit decisions of a tenant, newest first. A query for one trace finds its
	// decisions as long as the trace is kept. A query over all traces finds the newest 10,000 decisions of each
	// type.
	Decisions(ctx context.Context, tenant string, q DecisionQuery) ([]*troupev1.Decision, error)
}

// DecisionQuery selects decisions by trace and type.
type DecisionQuery struct {
	Trace string                // only decisions of this trace (empty means all)
	Type  troupev1.DecisionType // only decisions of this type (unspecified means all)
	Limit int                   // above 0
}

// Matches reports whether a decision has the type that the query asks for.
func (q DecisionQuery) Matches(d *troupev1.Decision) bool {
	return d != nil && (q.Type == troupev1.DecisionType_DECISION_TYPE_UNSPECIFIED || q.Type == d.GetType())
}
