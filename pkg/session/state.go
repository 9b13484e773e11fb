package session

// State says whether a session takes a turn (contract C-1). A session that is not known is
// made by its first turn.
//
//	           ┌──────── begin ────────┐
//	created ───┤                       ▼
//	ready ─────┤                     busy ── complete, cancel ──▶ ready
//	paused ────┤                       ├──── fail ──────────────▶ failed
//	failed ────┤                       ├──── ask for input ─────▶ input_required
//	input_required, auth_required ─────┘──── ask for auth ──────▶ auth_required
//
// Pause and close lead from every state but busy to paused and closed, resume from those two
// to ready. A closed session takes no turn until it is resumed.
//
// Frameworks that keep a session in a process often have the states created, starting, ready, busy, paused and shutdown.
// Here a stored session has no starting: only a session of package local is starting, while it loads. Closed takes the
// place of shutdown, but can be resumed. The outcome of the latest turn is a state too: failed, input_required and
// auth_required.
type State string

// The states of a session.
const (
	Created       State = "created" // the session has had no turn yet
	Ready         State = "ready"
	Busy          State = "busy"
	InputRequired State = "input_required" // the next turn brings the answer
	AuthRequired  State = "auth_required"  // the next turn brings the authorization
	Paused        State = "paused"         // the next turn resumes it
	Failed        State = "failed"         // takes the next turn
	Closed        State = "closed"         // takes no turn until it is resumed
)

// Verb is an operation on a session outside of a turn.
type Verb string

// The verbs. The zero Verb does nothing.
const (
	Pause  Verb = "pause"
	Resume Verb = "resume"
	Close  Verb = "close"
	Save   Verb = "save" // make unsaved messages part of the history; Pause and Close do so too
)

// TakesTurn reports whether a new turn may begin in this state.
func (s State) TakesTurn() bool { return s != Busy && s != Closed }

// Apply returns the state after a verb. It returns false if the verb is not allowed in this state. In Busy only
// Resume is allowed, and it has no effect.
func (s State) Apply(v Verb) (State, bool) {
	switch {
	case v == Pause && s == Closed:
		return Closed, true // the session is already closed
	case v == Pause && s != Busy:
		return Paused, true
	case v == Close && s != Busy:
		return Closed, true
	case v == Resume && (s == Paused || s == Closed):
		return Ready, true
	case s == Busy && (v == Pause || v == Close || v == Save):
		return s, false
	default:
		return s, true
	}
}

// SessionState returns the state of a session whose latest turn has this outcome.
func (o Outcome) SessionState() State {
	switch o {
	case OutcomeOpen:
		return Busy
	case OutcomeFailed:
		return Failed
	case OutcomeInputRequired:
		return InputRequired
	case OutcomeAuthRequired:
		return AuthRequired
	default:
		return Ready
	}
}
