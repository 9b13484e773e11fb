package turn

import (
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// order is how far a turn has come in what it tells. It keeps the stages in their order (OC-2):
// INITIALIZE comes first and once, PLAN directly behind it, steps are routed and executed in turn,
// AGGREGATE comes behind all of them, and one of the stages that end a trace comes last. The zero
// order has told nothing. Safe for concurrent use: steps of a round tell at once.
type order struct {
	mu sync.Mutex
	at troupev1.Stage
}

// after begins where an owner before this one stopped.
func (o *order) after(last troupev1.Stage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at = last
}

// to goes on to a stage. It fails with agent_logic, and stays where it is, when that cannot follow.
func (o *order) to(next troupev1.Stage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !follows(o.at, next) {
		return failure.Newf(failure.AgentLogic, "turn", "%s cannot follow %s; this is a fault of the orchestrator", next, o.at)
	}
	o.at = next
	return nil
}

// follows reports whether a stage may come behind another.
func follows(at, next troupev1.Stage) bool {
	began := at >= troupev1.Stage_STAGE_INITIALIZE && at <= troupev1.Stage_STAGE_AGGREGATE
	switch next {
	case troupev1.Stage_STAGE_INITIALIZE:
		return at == troupev1.Stage_STAGE_UNSPECIFIED
	case troupev1.Stage_STAGE_PLAN:
		return at == troupev1.Stage_STAGE_INITIALIZE
	case troupev1.Stage_STAGE_ROUTE, troupev1.Stage_STAGE_EXECUTE:
		return began && at != troupev1.Stage_STAGE_AGGREGATE
	case troupev1.Stage_STAGE_UNSPECIFIED:
		return false
	default: // AGGREGATE, which who takes the turn over may tell again, and the ends
		return began
	}
}
