package lifecycle

import "time"

// State is the state of an instance. Its values are defined by contract LC-1.
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

// Lease is what an instance knows about its registration in the registry. It is independent of the state.
type Lease string

// These are the values of a Lease (guarantees F9, F11).
const (
	LeaseNone    Lease = ""        // not registered yet
	LeaseOK      Lease = "ok"      // the lease is renewed
	LeaseUnknown Lease = "unknown" // the registry does not respond; steps are still admitted
	LeaseExpired Lease = "expired" // the lease has expired; no step is admitted until the next registration
)

// Status is the state of an instance with details about its steps and its lease.
type Status struct {
	State    State
	Version  uint64 // number of transitions so far
	InFlight int    // number of running steps
	Capacity int
	Pausing  bool // whether a Pause waits for steps
	Draining bool // whether the state is SHUTTING_DOWN and running steps may still finish
	Lease    Lease
	Since    time.Time // when the state was entered
	Reason   string    // reason given by the caller of the last verb
}

// Metrics are counters and durations that only grow (LC-25).
type Metrics struct {
	StartupTime      time.Duration
	ShutdownTime     time.Duration
	ActiveTime       time.Duration // total time with at least one running step
	TotalRequests    uint64
	FailedRequests   uint64
	StateTransitions uint64
}
