// Package turns begins, commits and ends turns.
package turns

import (
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/artifacts"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/journal"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Turns implements memory.Turns. It is safe for concurrent use.
type Turns struct {
	db        *db.DB
	journal   *journal.Journal
	artifacts *artifacts.Artifacts
}

// New returns a turn store that uses the given database, journals and artifacts.
func New(d *db.DB, j *journal.Journal, a *artifacts.Artifacts) *Turns { return &Turns{d, j, a} }

// RenewTurn implements memory.Turns.
func (s *Turns) RenewTurn(_ context.Context, lease memory.Lease, ttl time.Duration) error {
	return s.setLeaseEnd("memory.RenewTurn", lease, ttl)
}

// ReleaseTurn implements memory.Turns.
func (s *Turns) ReleaseTurn(_ context.Context, lease memory.Lease) error {
	return s.setLeaseEnd("memory.ReleaseTurn", lease, 0)
}

// setLeaseEnd sets a valid lease to end the given time from now.
func (s *Turns) setLeaseEnd(op string, lease memory.Lease, after time.Duration) error {
	s.db.Lock()
	defer s.db.Unlock()
	c, _, err := s.db.FindTurnByLease(op, lease)
	if err != nil {
		return err
	}
	c.LeaseEnd = s.db.Now().Add(after)
	return nil
}

// FailTurn implements memory.Turns.
func (s *Turns) FailTurn(_ context.Context, f memory.Fail) (session.Turn, error) {
	const op = "memory.FailTurn"
	if err := f.Check(op); err != nil {
		return session.Turn{}, err
	}
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.FindSession(op, f.Ref)
	if err != nil {
		return session.Turn{}, err
	}
	if t := s.db.FindTurn(c, f.TurnID); t != nil && t.Outcome != session.OutcomeOpen {
		return t.Snapshot(), nil
	}
	c, t, err := s.db.FindTurnByLease(op, memory.Lease{Ref: f.Ref, TurnID: f.TurnID, Epoch: f.Epoch})
	if err != nil {
		return session.Turn{}, err
	}
	if f.Outcome.NeedsInput() {
		return s.suspendTurn(op, c, t, f)
	}
	if partial, ok := memory.PartialMessage(t.Journals[t.RunningStep()]); ok && s.db.HasRoom(c, partial) {
		s.db.AppendMessages(c, t, partial)
	}
	c.MarkUntrusted(memory.JournalUntrustedSource(t.Journals[t.RunningStep()]))
	t.Failure = f.Failure
	s.journal.KeepRecording(t, t.RunningStep(), nil)
	c.LastActivity = s.db.Now()
	s.closeTurn(c, t, f.Outcome)
	return t.Snapshot(), nil
}

// suspendTurn closes a turn whose calls wait. It keeps the journals of their steps for the turn that continues.
func (s *Turns) suspendTurn(op string, c *db.Session, t *db.Turn, f memory.Fail) (session.Turn, error) {
	for _, r := range f.Results {
		if t.HasCommitted(r.Step) {
			return session.Turn{}, db.NewStepCommittedError(op, t, r.Step)
		}
	}
	waiting := map[int][]execution.Entry{}
	for _, r := range f.Results {
		t.Steps = append(t.Steps, r)
		t.Commits[r.Step] = memory.Commit{}
		c.MarkUntrusted(r.Untrusted)
		if len(r.Pending) > 0 {
			s.journal.KeepRecording(t, r.Step, nil)
			waiting[r.Step] = t.Journals[r.Step]
		}
	}
	slices.SortFunc(t.Steps, func(a, b execution.Result) int { return a.Step - b.Step })
	c.LastActivity = s.db.Now()
	s.closeTurn(c, t, f.Outcome)
	c.WaitingTurn, t.WaitingJournals = t.ID, waiting
	return t.Snapshot(), nil
}

// closeTurn closes a turn. It keeps the journals of a failed turn, because a later turn may resume it.
func (s *Turns) closeTurn(c *db.Session, t *db.Turn, outcome session.Outcome) {
	t.Outcome, t.ClosedAt = outcome, s.db.Now()
	if outcome != session.OutcomeFailed {
		t.Journals = nil
	}
	c.State, c.OpenTurn = outcome.SessionState(), ""
}
