package lifecycle

// State is where an instance stands. The values are those of contract LC-1.
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
