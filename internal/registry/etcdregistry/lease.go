package etcdregistry

import (
	"sync"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// leaseFact is what is known of a lease. Safe for concurrent use.
type leaseFact struct {
	mu      sync.Mutex
	lease   lifecycle.Lease
	changed chan struct{} // closed and replaced at each change
}

// Lease implements registry.Registration.
func (f *leaseFact) Lease() (lifecycle.Lease, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease, f.changed
}

func (f *leaseFact) set(l lifecycle.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lease != l {
		f.lease = l
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// learn draws from the outcome of a try to enrol. An etcd that does not answer proves
// nothing: a lease that was gone stays gone, and one that was kept may still be.
func (f *leaseFact) learn(err error) {
	known, _ := f.Lease()
	switch {
	case err == nil:
		f.set(lifecycle.LeaseOK)
	case failure.Is(err, failure.AgentState):
		f.set(lifecycle.LeaseExpired) // somebody else has the place
	case known == lifecycle.LeaseOK && failure.Is(err, failure.SystemNetwork, failure.SystemTimeout):
		f.set(lifecycle.LeaseUnknown)
	}
}
