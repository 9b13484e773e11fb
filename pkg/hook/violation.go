package hook

import (
	"sync"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// refused are writes to state of another owner that no event has told yet. Tools may run beside
// each other, and events are told by the goroutine of the turn alone.
type refused struct {
	mu  sync.Mutex
	all []event.OwnershipViolation
}

// maxRefused bounds what is told between two events: an agent may try in a loop.
const maxRefused = 16

// trespass notes a write that was refused: the next event is behind one that tells it, whatever
// who tried makes of its error (SO-6).
func (t *Turn) trespass(err *failure.Error) {
	v, ok := event.ViolationOf(err)
	t.refused.mu.Lock()
	defer t.refused.mu.Unlock()
	if ok && len(t.refused.all) < maxRefused {
		t.refused.all = append(t.refused.all, v)
	}
}

// trespasses returns what was noted, once.
func (t *Turn) trespasses() []event.OwnershipViolation {
	t.refused.mu.Lock()
	defer t.refused.mu.Unlock()
	all := t.refused.all
	t.refused.all = nil
	return all
}
