// Package status holds what one process knows about a session: whether it is open and in use, its state, and the
// turns that are not stored yet.
package status

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Starting is the state of a session while it is loaded. It is never stored (LP-6).
const Starting session.State = "starting"

// Status holds what this process knows of one session. Safe for concurrent use. An operation claims the session,
// works with it alone, and releases it in the resulting state.
type Status struct {
	id string // id of the session

	mu      sync.Mutex
	isOpen  bool
	claimed bool
	state   session.State
	stop    context.CancelFunc // requests a stop of the running turn (nil while none runs)
	info    session.Session    // the stored session, as far as this process knows it
	unsaved []*storage.Turn    // turns that are not stored yet, in order
}

// New returns the Status of a session that was not started yet.
func New(id string) *Status { return &Status{id: id, state: session.Created} }

// State returns the state of the session.
func (s *Status) State() session.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return session.Busy
	}
	return s.state
}

// Info returns what is known about the session, including turns that are not stored yet.
func (s *Status) Info() session.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := s.info
	info.State, info.Pending = s.state, slices.Clone(info.Pending)
	if s.stop != nil {
		info.State = session.Busy
	}
	return info
}

// StoredState returns the state of the session as it is in the store.
func (s *Status) StoredState() session.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info.State
}

// IsOpen reports whether the session was started and not closed since.
func (s *Status) IsOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOpen
}

// Start sets the state to starting and returns the previous state. It changes nothing if the session is already
// open.
func (s *Status) Start() (before session.State, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.state
	if !s.isOpen {
		s.state = Starting
	}
	return before, s.isOpen
}

// RecordStart records the outcome of a start. The session is open if the start succeeded.
func (s *Status) RecordStart(state session.State, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.isOpen = state, open
}

// RecordClose records that the session was closed.
func (s *Status) RecordClose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen = false
}

// Claim reserves the session for one operation until Release. stop requests a stop of a turn (nil for any other
// operation). Modes: session_busy, session_closed.
func (s *Status) Claim(op string, stop context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.claimed:
		return failure.Newf(failure.SessionBusy, op, "session %s is in use; wait until its turn ends, or stop it", s.id).With("session_id", s.id)
	case !s.isOpen:
		return failure.Newf(failure.SessionClosed, op, "session %s is closed; start it first", s.id).With("session_id", s.id)
	}
	s.claimed, s.stop = true, stop
	return nil
}

// Release ends a claim and sets the session's state (an empty state keeps the current one).
func (s *Status) Release(state session.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed, s.stop = false, nil
	s.state = cmp.Or(state, s.state)
}

// Stop asks the running turn to stop. It does nothing while none runs.
func (s *Status) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
}

// SetStored replaces what is known about the session by its stored data.
func (s *Status) SetStored(info session.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
}

// SetState sets the state in which a turn left the session.
func (s *Status) SetState(state session.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// SetWaiting records the calls that wait after a turn with these steps.
func (s *Status) SetWaiting(turn string, steps []execution.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.WaitingTurn, s.info.Pending = "", nil
	if len(steps) == 0 {
		return
	}
	if last := steps[len(steps)-1]; len(last.Pending) > 0 {
		s.info.WaitingTurn, s.info.Pending = turn, last.Pending
	}
}

// RefreshWaiting updates the waiting calls from the store, because another process may have answered some of them.
func (s *Status) RefreshWaiting(info session.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.WaitingTurn != "" && info.WaitingTurn == "" && s.state == session.InputRequired {
		s.state = session.Ready
	}
	s.info.WaitingTurn, s.info.Pending = info.WaitingTurn, info.Pending
}

// AddStored records that a turn was stored, and the sequence of its last message. Sequences have no gaps.
func (s *Status) AddStored(turn int, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.Turns, s.info.LastActivity = max(turn, s.info.Turns), time.Now()
	last = max(last, s.info.LastSequence)
	s.info.Size.Messages += last - s.info.LastSequence
	s.info.LastSequence = last
}

// AddUnsaved records a turn that is not stored yet.
func (s *Status) AddUnsaved(t *storage.Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaved = append(s.unsaved, t)
	s.info.Turns, s.info.LastActivity = t.Number, time.Now()
	s.info.WaitingTurn, s.info.Pending = "", nil
	s.info.Size.Messages += int64(len(t.AllMessages()))
}

// Unsaved returns the turns that are not stored yet, in order.
func (s *Status) Unsaved() []*storage.Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsaved
}

// RemoveFirstUnsaved records that the first of the unsaved turns was stored.
func (s *Status) RemoveFirstUnsaved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaved = s.unsaved[1:]
}

// RecordCompaction records a compaction, and returns the resulting facts.
func (s *Status) RecordCompaction(done conversation.Compaction) session.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.Size.Messages -= done.Messages
	s.info.Size.Summarized = max(s.info.Size.Summarized, done.Last)
	return s.info
}

// RecordClear records that messages, state and artifacts were removed. It also drops the unsaved turns.
func (s *Status) RecordClear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.Turns -= len(s.unsaved)
	s.unsaved, s.info.Size.Messages, s.info.Size.Bytes, s.info.Size.ArtifactBytes = nil, 0, 0, 0
	s.info.WaitingTurn, s.info.Pending = "", nil
}
