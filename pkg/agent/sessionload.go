package agent

import (
	"context"
	"math"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// storeTime is how long one thing may take that is written or read beside the running agent.
const storeTime = 10 * time.Second

// stored makes a call of the store, and repeats it while the store does not answer.
func stored[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return retry.Do(ctx, call)
}

// Start loads the conversation. A session that is started stays as it is (LP-7a); one that
// was closed is opened again (LP-9). Modes: as those of Open.
func (s *Session) Start(ctx context.Context) error {
	s.ops.Lock()
	defer s.ops.Unlock()
	s.mu.Lock()
	open, before := s.open, s.state
	if !open {
		s.state = Starting
	}
	s.mu.Unlock()
	if open {
		return nil
	}
	state := before
	err := s.agent.Start(ctx)
	if err == nil {
		state, err = s.load(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.state = before
		return err
	}
	s.state, s.open = state, true
	return nil
}

// load reads what is stored and returns the state in which the session is ready. With
// autosave a session that is new is stored, and one that was set aside is resumed (LP-10a).
func (s *Session) load(ctx context.Context) (session.State, error) {
	info, err := stored(ctx, func(ctx context.Context) (session.Session, error) {
		if s.cfg.NoAutoSave {
			return s.cfg.Store.GetSession(ctx, s.ref)
		}
		return s.cfg.Store.UpdateSession(ctx, memory.SessionUpdate{Ref: s.ref, Verb: session.Resume, Create: true, User: s.cfg.User})
	})
	if s.cfg.NoAutoSave && failure.Is(err, failure.NotFound) {
		info, err = session.Session{ID: s.ref.Session, User: s.cfg.User, Created: time.Now()}, nil
	}
	if err == nil && info.WaitingTurn != "" && info.Pending == nil { // the calls that wait are not in each answer
		info, err = stored(ctx, func(ctx context.Context) (session.Session, error) { return s.cfg.Store.GetSession(ctx, s.ref) })
	}
	if err != nil {
		return "", err
	}
	if info.User != s.cfg.User && (info.User != "" || info.Turns > 0) {
		return "", failure.Newf(failure.NotFound, "agent.Open", "there is no session %s of this user", s.ref.Session).With("session_id", s.ref.Session)
	}
	if s.cfg.NoAutoSave {
		messages, err := s.latest(ctx, info, s.cfg.Window)
		if err != nil {
			return "", err
		}
		if s.source, err = s.remembered(ctx, info); err != nil {
			return "", err
		}
		s.window = s.latestOf(messages)
	}
	s.mu.Lock()
	s.known = info
	s.mu.Unlock()
	s.lost = info.OpenTurn
	switch state := info.State; {
	case info.WaitingTurn != "": // also in one that was set aside
		return session.InputRequired, nil
	case state == session.Failed || state == session.InputRequired || state == session.AuthRequired:
		return state, nil
	case state == session.Busy:
		left, err := s.leaseLeft(ctx, info.OpenTurn)
		if err == nil && left > 0 {
			return session.Busy, nil
		}
		return session.Ready, err
	default:
		return session.Ready, nil
	}
}

// leaseLeft is how long a turn stays with the process that works on it; 0 when nobody does,
// or when it cannot be known because the turn is not one of a Session.
func (s *Session) leaseLeft(ctx context.Context, turn string) (time.Duration, error) {
	found, err := stored(ctx, func(ctx context.Context) (memory.Begun, error) {
		b := s.asking(turn, newTrace())
		b.LookupOnly = true
		return s.cfg.Store.BeginTurn(ctx, b)
	})
	if failure.Is(err, failure.KeyReused, failure.NotFound) {
		return 0, nil
	}
	return found.LeaseLeft, err
}

// latest are the last stored messages, at most so many.
func (s *Session) latest(ctx context.Context, info session.Session, limit int) ([]conversation.Message, error) {
	if info.Sequence == 0 {
		return nil, nil
	}
	return s.read(ctx, max(0, info.Sequence-int64(limit)))
}

// latestOf is what turns are shown of messages: the latest, behind the source of those that went.
func (s *Session) latestOf(messages []conversation.Message) []conversation.Message {
	source := conversation.Gravest(s.source, conversation.Untrusted(messages))
	return conversation.Behind(source, conversation.Window(messages, s.cfg.Window, 0))
}

// remembered is the source of untrusted words that the store knows of, also when no message has it.
func (s *Session) remembered(ctx context.Context, info session.Session) (string, error) {
	if info.Turns == 0 {
		return "", nil
	}
	seen, err := stored(ctx, func(ctx context.Context) (memory.Snapshot, error) { return s.cfg.Store.GetState(ctx, s.ref) })
	return seen.Untrusted, err
}

// read are all stored messages behind a sequence.
func (s *Session) read(ctx context.Context, after int64) ([]conversation.Message, error) {
	var all []conversation.Message
	for {
		page, err := stored(ctx, func(ctx context.Context) ([]conversation.Message, error) {
			return s.cfg.Store.LoadHistory(ctx, s.ref, after, memory.MaxWindow)
		})
		if err != nil || len(page) == 0 {
			return all, err
		}
		all, after = append(all, page...), page[len(page)-1].Sequence
	}
}

// Messages are the conversation, oldest first, with turns that are not saved yet: the latest
// so many, or with 0 all (LP-4). What a compaction took out is one message of RoleSummary.
// Messages that are not saved have no sequence and time.
func (s *Session) Messages(ctx context.Context, latest int) ([]conversation.Message, error) {
	s.mu.Lock()
	unsaved := s.unsaved
	s.mu.Unlock()
	info, err := stored(ctx, func(ctx context.Context) (session.Session, error) { return s.cfg.Store.GetSession(ctx, s.ref) })
	if err != nil && !failure.Is(err, failure.NotFound) { // it may not be saved yet
		return nil, err
	}
	if latest <= 0 {
		latest = math.MaxInt
	}
	all, err := s.latest(ctx, info, latest)
	if err != nil {
		return nil, err
	}
	for _, ep := range unsaved {
		for _, m := range ep.all() {
			m.Turn = ep.number
			all = append(all, m)
		}
	}
	return all[max(0, len(all)-latest):], nil
}

// Artifacts are what turns made, in all versions, by name and version, also the user: ones of
// the user's other sessions, with those that are not saved yet behind them (LP-22, AD-23).
func (s *Session) Artifacts(ctx context.Context) ([]memory.Artifact, error) {
	s.mu.Lock()
	unsaved := s.unsaved
	s.mu.Unlock()
	all, err := stored(ctx, func(ctx context.Context) ([]memory.Artifact, error) { return s.cfg.Store.ListArtifacts(ctx, s.ref) })
	if err != nil && !failure.Is(err, failure.NotFound) {
		return nil, err
	}
	for _, ep := range unsaved {
		for _, f := range ep.files {
			all = append(all, f.Artifact)
		}
	}
	return all, nil
}
