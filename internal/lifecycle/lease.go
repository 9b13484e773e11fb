package lifecycle

// Lease is what an instance knows of its registration. It is a fact beside the state, never
// a state.
type Lease string

// What can be known of a lease (guarantees F9, F11).
const (
	LeaseNone    Lease = ""        // not registered yet
	LeaseOK      Lease = "ok"      // kept alive
	LeaseUnknown Lease = "unknown" // the registry does not answer; steps are taken all the same
	LeaseExpired Lease = "expired" // the registry says that it is gone; no new steps until it is registered anew
)

// SetLease tells the instance what is known of its registration. While the lease is EXPIRED
// no step is admitted; those that run go on.
func (i *Instance) SetLease(l Lease) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.status.Lease != l {
		i.status.Lease = l
		i.notify()
	}
}
