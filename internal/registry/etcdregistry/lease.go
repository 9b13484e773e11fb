package etcdregistry

import (
	"sync"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// leaseStatus holds what is known about the lease. It is safe for concurrent use.
type leaseStatus struct {
	mu      sync.Mutex
	lease   lifecycle.Lease
	changed chan struct{} // closed and replaced at each change
}

// Lease implements registry.Registration.
func (s *leaseStatus) Lease() (lifecycle.Lease, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease, s.changed
}

func (s *leaseStatus) set(l lifecycle.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != l {
		s.lease = l
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// updateFromResult updates the status from the result of ensureRegistered. An unreachable etcd does not tell
// whether the lease exists: an expired lease stays expired, and a valid one becomes unknown.
func (s *leaseStatus) updateFromResult(err error) {
	known, _ := s.Lease()
	switch {
	case err == nil:
		s.set(lifecycle.LeaseOK)
	case failure.Is(err, failure.AgentState):
		s.set(lifecycle.LeaseExpired) // another instance has the name
	case known == lifecycle.LeaseOK && failure.Is(err, failure.SystemNetwork, failure.SystemTimeout):
		s.set(lifecycle.LeaseUnknown)
	}
}
