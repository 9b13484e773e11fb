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
	if err := b.Check(op); err != nil {
		return memory.BeginResult{}, err
	}
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.FindSession(op, b.Ref)
	if err != nil {
		return memory.BeginResult{}, err
	}
	if c != nil && c.User != b.User && (c.User != "" || c.Turns > 0) {
		return memory.BeginResult{}, db.NewSessionNotFoundError(op, b.Ref)
	}
	if t := s.db.FindTurn(c, b.TurnID); t != nil {
		return s.beginKnownTurn(op, c, t, b)
	}
	if b.LookupOnly {
		return memory.BeginResult{}, db.NewTurnNotFoundError(op, b.Ref, b.TurnID)
	}
	return s.beginNewTurn(op, c, b)
}

// beginKnownTurn returns an existing turn. It takes the turn over first if the caller may do so.
func (s *Turns) beginKnownTurn(op string, c *db.Session, t *db.Turn, b memory.Begin) (memory.BeginResult, error) {
	left := c.LeaseEnd.Sub(s.db.Now())
	holds := left > 0 && t.Holder == b.TraceID
	// An epoch of an earlier generation may be unknown, or belong to another caller.
	over := b.LostEpoch == t.Epoch || t.Epoch < s.db.LeastEpoch
	switch {
	case t.Fingerprint != b.Fingerprint:
		return memory.BeginResult{}, failure.Newf(failure.KeyReused, op,
			"turn %s of session %s was begun with another request; use a new request_id for a new request", b.TurnID, b.Ref.Session).
			With("turn_id", b.TurnID)
	case t.Outcome != session.OutcomeOpen:
		return memory.BeginResult{Status: memory.StatusClosed, Turn: t.Snapshot()}, nil
	case holds && (!over || b.LookupOnly):
		return s.newHolderResult(c, t, b), nil
	case !holds && (left > 0 || b.LookupOnly):
		return memory.BeginResult{Status: memory.StatusOpen, Turn: t.Snapshot(), LeaseLeft: max(0, left)}, nil
	}
	s.grantLease(c, t, b)
	return s.newHolderResult(c, t, b), nil
}

// beginNewTurn begins a new turn of a session. The session is nil if this is its first turn.
func (s *Turns) beginNewTurn(op string, c *db.Session, b memory.Begin) (memory.BeginResult, error) {
	if err := s.checkSessionAvailable(op, c, b); err != nil {
		return memory.BeginResult{}, err
	}
	from, err := s.findPredecessor(op, c, b)
	if err != nil {
		return memory.BeginResult{}, err
	}
	isFirst := c == nil
	if isFirst {
		if s.db.ErasingUsers[db.Owner{Tenant: b.Ref.Tenant, User: b.User}] {
			return memory.BeginResult{}, db.NewSessionDeletedError(op, b.Ref)
		}
		c = s.db.NewSession(b.Ref)
	}
	if !s.db.HasRoomWithRounds(c, copiedRounds(b), newMessages(b)...) {
		return memory.BeginResult{}, s.db.NewSessionFullError(op, c)
	}
	if !s.artifacts.CanAttach(c, b) {
		return memory.BeginResult{}, artifacts.NewLimitError(op, c)
	}
	s.failExpiredTurn(op, c, b)
	s.db.Sessions[b.Ref] = c
	t := s.openTurn(c, b, from)
	if isFirst {
		c.Created = c.LastActivity // the same time, as in a store that reads its clock once
	}
	return s.newHolderResult(c, t, b), nil
}

// checkSessionAvailable rejects a new turn if the session is closed, or has an open turn whose lease and takeover
// grace have not expired. Modes: session_closed, session_busy.
func (s *Turns) checkSessionAvailable(op string, c *db.Session, b memory.Begin) error {
	switch {
	case c == nil:
		return nil
	case c.State == session.Closed:
		return failure.Newf(failure.SessionClosed, op, "session %s is closed; resume it first", c.ID).With("session_id", c.ID)
	case c.OpenTurn != "" && s.db.Now().Before(c.LeaseEnd.Add(b.TakeoverGrace)):
		return db.NewSessionBusyError(op, c)
	}
	return nil
}

// failExpiredTurn fails the open turn of the session, so that another turn can begin. The lease of the open turn
// has expired.
func (s *Turns) failExpiredTurn(op string, c *db.Session, b memory.Begin) {
	expired := c.TurnsByID[c.OpenTurn]
	if expired == nil {
		return
	}
	expired.Failure = failure.New(failure.SystemTimeout, op,
		"the turn was abandoned: its lease expired before it had an answer, and another turn of the session began").With("turn_id", expired.ID)
	journal := expired.Journals[expired.RunningStep()]
	if partial, ok := memory.PartialMessage(journal); ok && s.db.HasRoom(c, append(b.UserMessages(), partial)...) {
		s.db.AppendMessages(c, expired, partial)
	}
	c.MarkUntrusted(memory.JournalUntrustedSource(journal))
	s.closeTurn(c, expired, session.OutcomeFailed)
}

// openTurn creates a turn with its messages and inherited steps, and grants the caller its lease.
func (s *Turns) openTurn(c *db.Session, b memory.Begin, from predecessor) *db.Turn {
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
	t.UntrustedSource = c.UntrustedSource
	if from.waiting != nil {
		copyWaitingTurn(t, from.waiting, b)
	}
	if from.failed != nil {
		copyFailedTurn(t, from.failed, b)
	}
	inheritSteps(t, b)
	copyHistory(c, t, b)
	c.DropPendingCalls()
	c.State, c.OpenTurn, c.LastTrace = session.Busy, b.TurnID, b.TraceID
	t.Before = int64(len(c.Log))
	messages := b.UserMessages()
	for i := range messages {
		messages[i].Attachments = s.artifacts.Attach(c, t.ID, b)
	}
	s.db.AppendMessages(c, t, messages...)
	if from == (predecessor{}) {
		t.StartSequence = t.Sequence
	}
	s.appendStepMessages(c, t, b)
	s.grantLease(c, t, b)
	return t
}

// grantLease grants the caller the lease of the turn, with a new epoch.
func (s *Turns) grantLease(c *db.Session, t *db.Turn, b memory.Begin) {
	c.Epoch = max(c.Epoch+1, s.db.LeastEpoch)
	c.LeaseEnd, c.LastActivity = s.db.Now().Add(b.LeaseTTL), s.db.Now()
	t.Epoch, t.Holder = c.Epoch, b.TraceID
	t.Attempt++
}

// newHolderResult returns the result for the caller that holds the turn.
func (s *Turns) newHolderResult(c *db.Session, t *db.Turn, b memory.Begin) memory.BeginResult {
	history := windowAtBegin(c.Messages(), t.StartSequence, b.Window, int64(b.WindowTokens))
	return memory.BeginResult{
		Status: memory.StatusBegun, Turn: t.Snapshot(), History: conversation.MarkUntrusted(t.UntrustedSource, history), KeepsJournals: s.db.KeepJournals > 0,
		Agents: c.AgentsWithRounds(), Settings: c.Settings, Messages: t.Before, Removed: c.Removed(),
	}
}

// windowAtBegin returns the latest messages within the limits, up to the last message when the turn began.
func windowAtBegin(messages []conversation.Message, last int64, limit int, tokens int64) []conversation.Message {
	all := slices.DeleteFunc(messages, func(m conversation.Message) bool { return m.Sequence > last })
	fits := conversation.CountFitting(func(yield func(conversation.Message) bool) {
		for _, m := range slices.Backward(all) {
			if !yield(m) {
				return
			}
		}
	}, memory.MaxWindowBytes)
	return conversation.Window(all[len(all)-fits:], limit, tokens)
}
