package active

import (
	"errors"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// MaxWaiting is how many requests may wait for one session (guarantee F14).
const MaxWaiting = 8

// Table holds the active turns by session, and a queue of requests for each session. It is safe for concurrent
// use.
type Table struct {
	mu       sync.Mutex
	sessions map[session.Ref]*sessionEntry
}

// sessionEntry is a session that has an active turn or waiting requests.
type sessionEntry struct {
	turn    *Turn            // active turn (nil when this orchestrator drives none)
	queue   []*QueuePosition // only the first position may ask the memory service for its turn
	busyErr error            // the memory service's last error for the first position
	changed chan struct{}
	askMu   sync.Mutex // held while the first position asks the memory service, so that no other request becomes the first meanwhile
}

// QueuePosition is the position of a request in the queue of its session. Calls for the same turn share one
// position.
type QueuePosition struct {
	turnID      string
	isUrgent    bool // precedes all positions that are not urgent
	callerCount int
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{sessions: map[session.Ref]*sessionEntry{}} }

// getEntry returns the entry of a session, which it creates if needed. The caller holds the lock.
func (t *Table) getEntry(ref session.Ref) *sessionEntry {
	if t.sessions[ref] == nil {
		t.sessions[ref] = &sessionEntry{changed: make(chan struct{})}
	}
	return t.sessions[ref]
}

// notify signals that an entry has changed, and removes the entry if it is empty. The caller holds the lock.
func (t *Table) notify(ref session.Ref) {
	e := t.sessions[ref]
	close(e.changed)
	e.changed = make(chan struct{})
	if e.turn == nil && len(e.queue) == 0 {
		delete(t.sessions, ref)
	}
}

// Add makes a turn the active turn of its session.
func (t *Table) Add(turn *Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.getEntry(turn.Ref).turn = turn
}

// Remove removes the active turn of its session, and notifies the next request. If another turn is already active
// in the session, that turn stays.
func (t *Table) Remove(turn *Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(turn.done)
	if e := t.sessions[turn.Ref]; e != nil && e.turn == turn {
		e.turn = nil
		t.notify(turn.Ref)
	}
}

// FindBySession returns the active turn of a session (nil when there is none).
func (t *Table) FindBySession(ref session.Ref) *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.sessions[ref]; e != nil {
		return e.turn
	}
	return nil
}

// FindByTrace returns the active turn of a trace (nil when there is none).
func (t *Table) FindByTrace(ref trace.Ref) *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, e := range t.sessions {
		if e.turn != nil && of.Tenant == ref.Tenant && e.turn.TraceID == ref.Trace {
			return e.turn
		}
	}
	return nil
}

// Enqueue gives a request a position in the queue of its session. It returns false when the queue is full.
func (t *Table) Enqueue(ref session.Ref, turnID string, urgent bool) (*QueuePosition, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.getEntry(ref)
	if i := slices.IndexFunc(e.queue, func(p *QueuePosition) bool { return p.turnID == turnID }); i >= 0 {
		p := e.queue[i]
		p.callerCount++
		if urgent && !p.isUrgent {
			p.isUrgent = true
			e.queue = slices.Delete(e.queue, i, i+1)
			e.insert(p)
			t.notify(ref)
		}
		return p, true
	}
	if len(e.queue) >= MaxWaiting {
		return nil, false
	}
	p := &QueuePosition{turnID: turnID, isUrgent: urgent, callerCount: 1}
	e.insert(p)
	return p, true
}

// insert inserts an urgent position after the other urgent ones, and any other position at the end.
func (e *sessionEntry) insert(p *QueuePosition) {
	at := len(e.queue)
	if p.isUrgent {
		if i := slices.IndexFunc(e.queue, func(other *QueuePosition) bool { return !other.isUrgent }); i >= 0 {
			at = i
		}
	}
	e.queue = slices.Insert(e.queue, at, p)
}

// LeaveQueue gives up a position. The position is removed when the last call that shares it has left.
func (t *Table) LeaveQueue(ref session.Ref, p *QueuePosition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.callerCount--; p.callerCount > 0 {
		return
	}
	e := t.sessions[ref]
	e.queue = slices.DeleteFunc(e.queue, func(other *QueuePosition) bool { return other == p })
	t.notify(ref)
}

// CheckFirst reports whether a position is the first of its queue. The channel changed is closed when that
// changes, or when the active turn ends. A request that is first must call asked after the memory service has
// answered it.
func (t *Table) CheckFirst(ref session.Ref, p *QueuePosition) (first bool, asked func(), changed <-chan struct{}) {
	t.mu.Lock()
	e := t.sessions[ref] // the entry exists as long as it has a position
	t.mu.Unlock()
	e.askMu.Lock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.queue[0] != p {
		e.askMu.Unlock()
		return false, nil, e.changed
	}
	return true, e.askMu.Unlock, e.changed
}

// QueueLength returns how many requests wait for a session.
func (t *Table) QueueLength(ref session.Ref) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.sessions[ref]; e != nil {
		return len(e.queue)
	}
	return 0
}

// SessionCount returns how many sessions have an active turn or waiting requests at this orchestrator.
func (t *Table) SessionCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sessions)
}

// RecordBusy stores the error that the memory service returned to the first request of a queue.
func (t *Table) RecordBusy(ref session.Ref, busy error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.sessions[ref]; e != nil {
		e.busyErr = busy
	}
}

// NewBusyError returns a session_busy failure with the ids of the open turn and its trace, as far as they are
// known.
func (t *Table) NewBusyError(ref session.Ref, message string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := failure.New(failure.SessionBusy, "turn.Orchestrate", message)
	e := t.sessions[ref]
	switch {
	case e == nil:
		return err
	case e.turn != nil:
		return err.With("turn_id", e.turn.ID).With("trace_id", e.turn.TraceID)
	}
	for _, key := range []string{"turn_id", "trace_id"} {
		if value := FailureFact(e.busyErr, key); value != "" {
			err = err.With(key, value)
		}
	}
	return err
}

// FailureFact returns the fact with the given key from a failure (empty when there is none).
func FailureFact(err error, key string) string {
	e, ok := errors.AsType[*failure.Error](err)
	if !ok {
		return ""
	}
	return e.Facts[key]
}
