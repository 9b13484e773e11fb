package turn

import (
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// maxWaiting is how many requests may wait for a session (guarantee F14).
const maxWaiting = 8

// seats are the sessions that this runner drives a turn of, or that requests wait for. Safe
// for concurrent use.
type seats struct {
	mu    sync.Mutex
	known map[session.Ref]*seat
}

// seat is one session.
type seat struct {
	running *turn    // that this runner drives; nil when there is none
	line    []*place // of those who wait; the first has its turn next
	busy    error    // why the first still waits, as the memory service has it
	changed chan struct{}
	asking  sync.Mutex // of the first while it asks: whoever comes before it then waits for the answer
}

// place is one request's in the line. Calls for the same turn share it.
type place struct {
	turnID  string
	urgent  bool // comes before those that are not
	callers int
}

func newSeats() *seats { return &seats{known: map[session.Ref]*seat{}} }

// at is called with the lock held.
func (s *seats) at(ref session.Ref) *seat {
	if s.known[ref] == nil {
		s.known[ref] = &seat{changed: make(chan struct{})}
	}
	return s.known[ref]
}

// changed is called with the lock held, after each change of a seat.
func (s *seats) changed(ref session.Ref) {
	at := s.known[ref]
	close(at.changed)
	at.changed = make(chan struct{})
	if at.running == nil && len(at.line) == 0 {
		delete(s.known, ref)
	}
}

// drives says that this runner drives the turn.
func (s *seats) drives(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at(t.req.ref()).running = t
}

// ended says that nothing of the turn runs any more. A successor may have its seat already.
func (s *seats) ended(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(t.over)
	if at := s.known[t.req.ref()]; at != nil && at.running == t {
		at.running = nil
		s.changed(t.req.ref())
	}
}

// driven is the turn of a session that this runner drives; nil when there is none.
func (s *seats) driven(ref session.Ref) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.known[ref]; at != nil {
		return at.running
	}
	return nil
}

// traced is the turn of a trace that this runner drives; nil when there is none.
func (s *seats) traced(ref trace.Ref) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, at := range s.known {
		if at.running != nil && of.Tenant == ref.Tenant && at.running.turn.Trace == ref.Trace {
			return at.running
		}
	}
	return nil
}

// take gives a request a place in the line. It is false when there is none left.
func (s *seats) take(ref session.Ref, turnID string, urgent bool) (*place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.at(ref)
	if i := slices.IndexFunc(at.line, func(p *place) bool { return p.turnID == turnID }); i >= 0 {
		p := at.line[i]
		p.callers++
		if urgent && !p.urgent {
			p.urgent = true
			at.line = slices.Delete(at.line, i, i+1)
			at.join(p)
			s.changed(ref)
		}
		return p, true
	}
	if len(at.line) >= maxWaiting {
		return nil, false
	}
	p := &place{turnID: turnID, urgent: urgent, callers: 1}
	at.join(p)
	return p, true
}

// join puts a place behind those that come before it.
func (s *seat) join(p *place) {
	where := len(s.line)
	if p.urgent {
		if i := slices.IndexFunc(s.line, func(other *place) bool { return !other.urgent }); i >= 0 {
			where = i
		}
	}
	s.line = slices.Insert(s.line, where, p)
}

// leave gives a place back. It is free when the last who shares it has left.
func (s *seats) leave(ref session.Ref, p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.callers--; p.callers > 0 {
		return
	}
	at := s.known[ref]
	at.line = slices.DeleteFunc(at.line, func(other *place) bool { return other == p })
	s.changed(ref)
}

// first reports whether a place is the next, and returns what is closed when that changes,
// or the turn that this runner drives ends. Who is first calls done once it has asked.
func (s *seats) first(ref session.Ref, p *place) (first bool, done func(), changed <-chan struct{}) {
	s.mu.Lock()
	at := s.known[ref] // stays while there is a place
	s.mu.Unlock()
	at.asking.Lock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.line[0] != p {
		at.asking.Unlock()
		return false, nil, at.changed
	}
	return true, at.asking.Unlock, at.changed
}

// waiting reports whether somebody waits for the session.
func (s *seats) waiting(ref session.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.known[ref]
	return at != nil && len(at.line) > 0
}

// isBusy notes why the first in the line still waits.
func (s *seats) isBusy(ref session.Ref, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.known[ref]; at != nil {
		at.busy = why
	}
}

// busy is a session_busy with what is known of the turn that is open.
func (s *seats) busy(ref session.Ref, message string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := failure.New(failure.SessionBusy, "turn.Orchestrate", message)
	at := s.known[ref]
	switch {
	case at == nil:
		return err
	case at.running != nil:
		return err.With("turn_id", at.running.turn.ID).With("trace_id", at.running.turn.Trace)
	}
	for _, key := range []string{"turn_id", "trace_id"} {
		if value := fact(at.busy, key); value != "" {
			err = err.With(key, value)
		}
	}
	return err
}
