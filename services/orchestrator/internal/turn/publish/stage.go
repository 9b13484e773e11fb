package publish

import (
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// stages keeps the stages of the published events in their order (OC-2). INITIALIZE comes first and
// once, PLAN directly after it. ROUTE and EXECUTE alternate. AGGREGATE comes after all of them, and a
// stage that ends the trace comes last. The zero value has published nothing. Safe for concurrent
// use, because the steps of a round publish at once.
type stages struct {
	mu      sync.Mutex
	current troupev1.Stage
}

// resumeAt sets the current stage to the stage of the last event of an earlier owner.
func (s *stages) resumeAt(last troupev1.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = last
}

// advance moves to a stage. When that stage cannot follow the current one, it fails with agent_logic and changes
// nothing.
func (s *stages) advance(next troupev1.Stage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !canFollow(s.current, next) {
		return failure.Newf(failure.AgentLogic, "turn", "%s cannot follow %s; this is a fault of the orchestrator", next, s.current)
	}
	s.current = next
	return nil
}

// canFollow reports whether one stage may come after another.
func canFollow(at, next troupev1.Stage) bool {
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
	default: // the final stages, and AGGREGATE, which may be repeated after a takeover
		return began
	}
}
