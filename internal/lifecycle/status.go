package lifecycle

import "time"

// State is the state of an instance. The values are those of contract LC-1.
type State string

// The seven states.
const (
	Uninitialized State = "uninitialized"
	Initializing  State = "initializing"
	Ready         State = "ready"
	Busy          State = "busy"
	Paused        State = "paused"
	ShuttingDown  State = "shutting_down"
	Terminated    State = "terminated"
)

// Lease is what an instance knows of its registration. It is independent of the state.
type Lease string

// The values of a lease (guarantees F9, F11).
const (
	LeaseNone    Lease = ""        // not registered yet
	LeaseOK      Lease = "ok"      // kept alive
	LeaseUnknown Lease = "unknown" // the registry does not answer; steps are still admitted
	LeaseExpired Lease = "expired" // the registry says that it is gone; no step is admitted until the next registration
)

// Status is the state of an instance with the facts about it.
type Status struct {
	State    State
	Version  uint64 // grows by 1 with each transition
	InFlight int    // steps that run
	Capacity int
	Pausing  bool // a Pause waits for steps
	Draining bool // SHUTTING_DOWN, and running steps may still end
	Lease    Lease
	Since    time.Time // of the state
	Reason   string    // as the caller of the last verb gave it
}

// Metrics are counters that only grow (LC-25).
type Metrics struct {
	StartupTime      time.Duration
	ShutdownTime     time.Duration
	ActiveTime       time.Duration // with at least one running step
	TotalRequests    uint64
	FailedRequests   uint64
	StateTransitions uint64
}
