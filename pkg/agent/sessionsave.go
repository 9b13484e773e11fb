package agent

import (
	"context"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/turnlease"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Save stores what is not stored yet: the turns in their order, without AutoSave (LP-12). A
// turn that the store refuses is stored as one that failed, and the error says why. After
// any other error the rest is still there: save again. Modes: session_busy while a turn runs,
// here or elsewhere; session_closed; session_full; those of a store that does not answer.
func (s *Session) Save(ctx context.Context) error {
	return s.operate("agent.Save", func() (session.State, error) { return "", s.flush(ctx) })
}

// Pause saves, and sets the conversation aside: the next turn, here or elsewhere, resumes it
// (LP-9, C-4). What is loaded stays in memory. Modes: as those of Save.
func (s *Session) Pause(ctx context.Context) error {
	return s.operate("agent.Pause", func() (session.State, error) {
		if err := s.flush(ctx); err != nil {
			return "", err
		}
		s.mu.Lock()
		closed := s.known.State == session.Closed
		s.mu.Unlock()
		if closed { // it was opened, and nothing is written of that
			if err := s.update(ctx, session.Resume); err != nil {
				return "", err
			}
		}
		return session.Paused, s.update(ctx, session.Pause)
	})
}

// Close saves and releases the conversation. Start opens it again, here or elsewhere (LP-9).
// One that is closed stays so. When it cannot be saved it stays open: close it again. Modes:
// as those of Save; but that somebody else works on it already is no error.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if !open {
		return nil
	}
	return s.operate("agent.Close", func() (session.State, error) {
		if err := s.flush(ctx); err != nil {
			return "", err
		}
		if err := s.update(ctx, session.Close); err != nil && !failure.Is(err, failure.SessionBusy) {
			return "", err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open, s.window, s.lost = false, nil, ""
		return session.Closed, nil
	})
}

// Clear removes the messages, the state and the artifacts, at once, also what is not saved
// yet (LP-11). The session stays usable, and its turns count on: a conversation from turn 1 is
// one with another ID (CO-19). Modes: as those of Save.
func (s *Session) Clear(ctx context.Context) error {
	return s.operate("agent.Clear", func() (session.State, error) {
		if err := s.settle(ctx); err != nil {
			return "", err
		}
		_, err := alone(ctx, s, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.cfg.Store.ClearSession(ctx, s.ref)
		})
		if err != nil && !failure.Is(err, failure.NotFound) { // it may not be saved yet
			return "", err
		}
		s.window, s.source, s.lost = nil, "", ""
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known.Turns -= len(s.unsaved)
		s.unsaved, s.known.Messages, s.known.Bytes, s.known.ArtifactBytes = nil, 0, 0, 0
		s.known.WaitingTurn, s.known.Pending = "", nil
		return "", nil
	})
}

// operate does something beside turns.
func (s *Session) operate(op string, do func() (session.State, error)) error {
	s.ops.Lock()
	defer s.ops.Unlock()
	if err := s.claim(op, nil); err != nil {
		return err
	}
	var state session.State
	defer func() { s.release(state) }()
	after, err := do()
	if err == nil {
		state = after
	}
	return err
}

// alone makes a call that is refused while a turn is open. A turn whose process was lost is
// given up for it.
func alone[T any](ctx context.Context, s *Session, call func(context.Context) (T, error)) (T, error) {
	out, err := stored(ctx, call)
	if !failure.Is(err, failure.SessionBusy) {
		return out, err
	}
	if err := s.giveUp(ctx, err); err != nil {
		return out, err
	}
	return stored(ctx, call)
}

// update pauses, resumes or closes what is stored.
func (s *Session) update(ctx context.Context, verb session.Verb) error {
	_, err := alone(ctx, s, func(ctx context.Context) (session.Session, error) {
		return s.cfg.Store.UpdateSession(ctx, memory.SessionUpdate{Ref: s.ref, Verb: verb, Create: true, User: s.cfg.User})
	})
	return err
}

// flush stores what is not stored yet.
func (s *Session) flush(ctx context.Context) error {
	if err := s.settle(ctx); err != nil || !s.cfg.NoAutoSave {
		return err
	}
	s.mu.Lock()
	verb := session.Verb("")
	if len(s.unsaved) > 0 {
		verb = session.Resume // a closed one takes no turn
	}
	s.mu.Unlock()
	if err := s.update(ctx, verb); err != nil {
		return err
	}
	var refused error
	for {
		s.mu.Lock()
		unsaved := s.unsaved
		s.mu.Unlock()
		if len(unsaved) == 0 {
			break
		}
		done, err := s.put(ctx, unsaved[0])
		if !done {
			return err
		}
		if refused == nil {
			refused = err
		}
		s.mu.Lock()
		s.unsaved = unsaved[1:]
		s.mu.Unlock()
	}
	info, err := stored(ctx, func(ctx context.Context) (session.Session, error) { return s.cfg.Store.GetSession(ctx, s.ref) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.known = info
	s.mu.Unlock()
	if s.cfg.AutoCompact && info.Messages > int64(s.cfg.MaxMessages) {
		if _, err := s.compact(ctx, 0, ""); err != nil {
			return err
		}
	}
	return refused
}

// put stores one turn that ran before. It is false when the turn is still to be stored.
func (s *Session) put(ctx context.Context, ep *episode) (bool, error) {
	begun, err := stored(ctx, func(ctx context.Context) (memory.Begun, error) { return s.cfg.Store.BeginTurn(ctx, s.beginning(ep)) })
	switch {
	case failure.Is(err, failure.SessionBusy):
		return false, s.elsewhere(ctx, err)
	case err != nil:
		return false, err
	case begun.Status == memory.StatusClosed: // its answer was lost on the way
		return true, nil
	case begun.Status == memory.StatusOpen:
		return false, s.busy(ep.id, begun.LeaseLeft)
	}
	w := s.scribe(ep, begun)
	if err = s.upload(ctx, w); err == nil {
		if _, err = w.write(ctx); err == nil {
			return true, nil
		}
	}
	if unsure(err) || !ep.answered() {
		return false, err
	}
	ep.fails(session.OutcomeFailed, asFailure(err))
	if _, again := w.write(ctx); again != nil {
		return false, again
	}
	return true, err
}

// upload stores the artifacts of a turn, for as long as it is held.
func (s *Session) upload(ctx context.Context, w *scribe) error {
	if len(w.files) == 0 {
		return nil
	}
	var keeping sync.WaitGroup
	defer keeping.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	keeping.Go(func() { turnlease.Renew(ctx, s.cfg.Store, w.hold, s.cfg.Lease, end) })
	to := Remember(s.cfg.Store, w.hold, s.cfg.User)
	for _, f := range w.files {
		if _, err := to.SaveArtifact(ctx, f.Name, f.MediaType, f.content); err != nil {
			return failure.FromCause(ctx, err)
		}
	}
	return nil
}

// keep remembers a turn that is not stored yet.
func (s *Session) keep(ep *episode) {
	s.window = s.latestOf(append(s.window, ep.all()...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaved = append(s.unsaved, ep)
	s.known.Turns, s.known.LastActivity = ep.number, time.Now()
	s.known.WaitingTurn, s.known.Pending = "", nil
	s.known.Messages += int64(len(ep.all()))
}

// wrote notes what a turn added to what is stored: a sequence has no holes.
func (s *Session) wrote(turn int, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Turns, s.known.LastActivity = max(turn, s.known.Turns), time.Now()
	last = max(last, s.known.Sequence)
	s.known.Messages += last - s.known.Sequence
	s.known.Sequence = last
}
