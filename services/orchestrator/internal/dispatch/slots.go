package dispatch

import (
	"sync"

	"github.com/troupe-dev/troupe/pkg/registry"
)

// slots counts the steps that this orchestrator has at each instance, so that it waits for
// a place instead of asking again and again. The instance itself has the last word: there
// may be other orchestrators. Safe for concurrent use.
type slots struct {
	mu    sync.Mutex
	used  map[registry.Key]int
	freed chan struct{} // closed and replaced when a place becomes free
}

func newSlots() *slots {
	return &slots{used: map[registry.Key]int{}, freed: make(chan struct{})}
}

// take reports whether the instance has a place left; the caller gives it back once.
func (s *slots) take(in registry.Instance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[in.Key()] >= in.Capacity {
		return false
	}
	s.used[in.Key()]++
	return true
}

// give returns a place. One that was not used, because the instance refused, tells nobody:
// whoever waits would only be refused as well.
func (s *slots) give(in registry.Instance, used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[in.Key()]--; s.used[in.Key()] == 0 {
		delete(s.used, in.Key())
	}
	if !used {
		return
	}
	close(s.freed)
	s.freed = make(chan struct{})
}

// next is closed when a place becomes free after the call.
func (s *slots) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}
