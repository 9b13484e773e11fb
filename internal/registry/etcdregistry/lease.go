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
func (f *leaseStatus) Lease() (lifecycle.Lease, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease, f.changed
}

func (f *leaseStatus) set(l lifecycle.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lease != l {
		f.lease = l
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// updateFromResult updates the status from the result of ensureRegistered. An unreachable etcd does not tell
// whether the lease exists: an expired lease stays expired, and a valid one becomes unknown.
func (f *leaseStatus) updateFromResult(err error) {
	known, _ := f.Lease()
	switch {
	case err == nil:
		f.set(lifecycle.LeaseOK)
	case failure.Is(err, failure.AgentState):
		f.set(lifecycle.LeaseExpired) // another instance has the name
	case known == lifecycle.LeaseOK && failure.Is(err, failure.SystemNetwork, failure.SystemTimeout):
		f.set(lifecycle.LeaseUnknown)
	}
}
