package turns

import (
	"context"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/artifacts"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// BeginTurn implements memory.Turns.
func (s *Turns) BeginTurn(_ context.Context, b memory.Begin) (memory.BeginResult, error) {
	const op = "memory.BeginTurn"
	if err := memory.CheckBegin(op, b); err != nil {
		return memory.BeginResult{}, err
	}
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.Find(op, b.Ref)
	if err != nil {
		return memory.BeginResult{}, err
	}
	if c != nil && c.User != b.User && (c.User != "" || c.Turns > 0) {
		return memory.BeginResult{}, db.NoSession(op, b.Ref)
	}
	if t := s.db.FindTurn(c, b.TurnID); t != nil {
		return s.beginKnown(op, c, t, b)
	}
	if b.LookupOnly {
		return memory.BeginResult{}, db.UnknownTurn(op, b.Ref, b.TurnID)
	}
	return s.beginNew(op, c, b)
}

// beginKnown returns a turn that exists, after taking it over if the caller may.
func (s *Turns) beginKnown(op string, c *db.Session, t *db.Turn, b memory.Begin) (memory.BeginResult, error) {
	left := c.LeaseEnd.Sub(s.db.Now())
	holds := left > 0 && t.Holder == b.TraceID
	switch {
	case t.Fingerprint != b.Fingerprint:
		return memory.BeginResult{}, failure.Newf(failure.KeyReused, op,
			"turn %s of session %s was begun with another request; use a new request_id for a new request", b.TurnID, b.Ref.Session).
			With("turn_id", b.TurnID)
	case t.Outcome != session.OutcomeOpen:
		return memory.BeginResult{Status: memory.StatusClosed, Turn: t.Snapshot()}, nil
	case holds && (b.LostEpoch != t.Epoch || b.LookupOnly):
		return s.begun(c, t, b), nil
	case !holds && (left > 0 || b.LookupOnly):
		return memory.BeginResult{Status: memory.StatusOpen, Turn: t.Snapshot(), LeaseLeft: max(0, left)}, nil
	}
	s.lease(c, t, b)
	return s.begun(c, t, b), nil
}

// beginNew begins a turn of a session. The session is nil if the turn is its first.
func (s *Turns) beginNew(op string, c *db.Session, b memory.Begin) (memory.BeginResult, error) {
	if err := s.checkFree(op, c, b); err != nil {
		return memory.BeginResult{}, err
	}
	from, err := s.findPredecessor(op, c, b)
	if err != nil {
		return memory.BeginResult{}, err
	}
	isFirst := c == nil
	if isFirst {
		if s.db.Erasing[db.Owner{Tenant: b.Ref.Tenant, User: b.User}] {
			return memory.BeginResult{}, db.SessionDeleted(op, b.Ref)
		}
		c = s.db.NewSession(b.Ref)
	}
	if !s.db.HasRoom(c, newMessages(b)...) {
		return memory.BeginResult{}, s.db.SessionFull(op, c)
	}
	if !s.artifacts.CanAttach(c, b) {
		return memory.BeginResult{}, artifacts.LimitExceeded(op, c)
	}
	s.failExpired(op, c, b)
	s.db.Sessions[b.Ref] = c
	t := s.open(c, b, from)
	if isFirst {
		c.Created = c.LastActivity // the same time, as in a store that reads its clock once
	}
	return s.begun(c, t, b), nil
}

// checkFree rejects a new turn while the session is closed or works on another turn. Modes:
// session_closed, session_busy.
func (s *Turns) checkFree(op string, c *db.Session, b memory.Begin) error {
	switch {
	case c == nil:
		return nil
	case c.State == session.Closed:
		return failure.Newf(failure.SessionClosed, op, "session %s is closed; resume it first", c.ID).With("session_id", c.ID)
	case c.OpenTurn != "" && s.db.Now().Before(c.LeaseEnd.Add(b.TakeoverGrace)):
		return db.Busy(op, c)
	}
	return nil
}

// failExpired fails the open turn of the session, whose lease has expired, to make room for another.
func (s *Turns) failExpired(op string, c *db.Session, b memory.Begin) {
	expired := c.TurnsByID[c.OpenTurn]
	if expired == nil {
		return
	}
	expired.Failure = failure.New(failure.SystemTimeout, op,
		"the turn was given up: its lease ran out before it had an answer, and another turn of the session began").With("turn_id", expired.ID)
	journal := expired.Journals[expired.RunningStep()]
	if partial, ok := memory.PartialMessage(journal); ok && s.db.HasRoom(c, append(b.UserMessages(), partial)...) {
		s.db.Append(c, expired, partial)
	}
	c.MarkUntrusted(memory.JournalSource(journal))
	s.close(c, expired, session.OutcomeFailed)
}

// open creates a turn with everything that it begins with, and leases it to the caller.
func (s *Turns) open(c *db.Session, b memory.Begin, from predecessor) *db.Turn {
	c.User = b.User
	c.Turns++
	t := &db.Turn{
		Turn:        session.Turn{ID: b.TurnID, Trace: b.TraceID, Number: c.Turns},
		Fingerprint: b.Fingerprint,
		Commits:     map[int]memory.Commit{},
		Journals:    map[int][]execution.Entry{},
	}
	c.TurnsByID[b.TurnID] = t
	c.MarkUntrusted(b.UntrustedSource())
	t.Untrusted = c.Untrusted
	if from.waiting != nil {
		continueWaiting(t, from.waiting, b)
	}
	if from.failed != nil {
		resumeFailed(t, from.failed, b)
	}
	inheritSteps(t, b)
	copyHistory(c, t, b)
	c.DropWaiting()
	c.State, c.OpenTurn, c.LastTrace = session.Busy, b.TurnID, b.TraceID
	messages := b.UserMessages()
	for i := range messages {
		messages[i].Attachments = s.artifacts.Attach(c, t.ID, b)
	}
	s.db.Append(c, t, messages...)
	if from == (predecessor{}) {
		t.First = t.Sequence
	}
	s.appendStepMessages(c, t, b)
	s.lease(c, t, b)
	return t
}

// lease gives the turn to the caller, with a new epoch.
func (s *Turns) lease(c *db.Session, t *db.Turn, b memory.Begin) {
	c.Epoch = max(c.Epoch+1, s.db.LeastEpoch)
	c.LeaseEnd, c.LastActivity = s.db.Now().Add(b.LeaseTTL), s.db.Now()
	t.Epoch, t.Holder = c.Epoch, b.TraceID
	t.Attempt++
}

// begun returns the answer to the caller that holds the turn.
func (s *Turns) begun(c *db.Session, t *db.Turn, b memory.Begin) memory.BeginResult {
	history := window(c.Messages(), t.First, b.Window, int64(b.WindowTokens))
	return memory.BeginResult{
		Status: memory.StatusBegun, Turn: t.Snapshot(), History: conversation.MarkUntrusted(t.Untrusted, history), KeepsJournals: s.db.KeepJournals > 0,
	}
}

// window returns the latest messages up to the one that the turn began with, within the limits.
func window(messages []conversation.Message, first int64, limit int, tokens int64) []conversation.Message {
	all := slices.DeleteFunc(messages, func(m conversation.Message) bool { return m.Sequence > first })
	fits := conversation.CountFitting(func(yield func(conversation.Message) bool) {
		for _, m := range slices.Backward(all) {
			if !yield(m) {
				return
			}
		}
	}, memory.MaxWindowBytes)
	return conversation.Window(all[len(all)-fits:], limit, tokens)
}
