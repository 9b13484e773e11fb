package turns

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// CommitStep implements memory.Turns.
func (s *Turns) CommitStep(_ context.Context, commit memory.Commit) (int64, error) {
	const op = "memory.CommitStep"
	if err := memory.CheckDelta(op, commit.State); err != nil {
		return 0, err
	}
	if err := memory.CheckPending(op, commit); err != nil {
		return 0, err
	}
	s.db.Lock()
	defer s.db.Unlock()
	last := commit.Base + int64(len(commit.Messages))
	c, err := s.db.FindSession(op, commit.Ref)
	if err != nil {
		return 0, err
	}
	if s.isRepeatedCommit(c, commit) {
		return last, nil
	}
	c, t, err := s.db.FindTurnByLease(op, memory.Lease{Ref: commit.Ref, TurnID: commit.TurnID, Epoch: commit.Epoch})
	if err != nil {
		return 0, err
	}
	deltas := splitByScope(commit.State)
	if err := s.checkCommit(op, c, t, commit, deltas); err != nil {
		return 0, err
	}
	s.applyCommit(c, t, commit, deltas)
	return last, nil
}

// isRepeatedCommit reports whether the holder of this epoch has already made the same commit.
func (s *Turns) isRepeatedCommit(c *db.Session, commit memory.Commit) bool {
	t := s.db.FindTurn(c, commit.TurnID)
	if t == nil || t.Epoch != commit.Epoch {
		return false
	}
	known, ok := t.Commits[commit.Result.Step]
	return ok && reflect.DeepEqual(known, withoutStoreFields(commit))
}

// checkCommit rejects a commit that conflicts with the turn or exceeds the limits. See memory.Turns for the modes
// and their order.
func (s *Turns) checkCommit(op string, c *db.Session, t *db.Turn, commit memory.Commit, deltas map[memory.Scope]delta) error {
	step := commit.Result.Step
	switch {
	case t.HasCommitted(step):
		return db.NewStepCommittedError(op, t, step)
	case t.HasUncommittedContinuedStep() && step != t.ContinuedStep:
		return storeerror.WaitingStepFirst(op, t.ID, step, t.ContinuedStep)
	case len(commit.Result.Pending) > 0 && step < t.RunningStep():
		return storeerror.NotLastStep(op, t.ID, step)
	case commit.Base != c.Sequence:
		return failure.Newf(failure.BaseMismatch, op, "session %s ends with message %d and not %d; load the history again and repeat the step",
			c.ID, c.Sequence, commit.Base).
			With("base_sequence", db.FormatDecimal(commit.Base)).With("last_sequence", db.FormatDecimal(c.Sequence))
	case !s.db.HasRoom(c, commit.Messages...):
		return s.db.NewSessionFullError(op, c)
	case deltas[memory.ScopeUser] != nil && c.User == "":
		return db.NewNoUserError(op, c)
	}
	for name, changes := range deltas {
		if !s.db.FindScope(commit.Ref, c, name).HasRoom(changes) {
			return db.NewScopeFullError(op, name)
		}
	}
	return nil
}

// applyCommit stores a commit that checkCommit has accepted.
func (s *Turns) applyCommit(c *db.Session, t *db.Turn, commit memory.Commit, deltas map[memory.Scope]delta) {
	s.db.AppendMessages(c, t, commit.Messages...)
	c.MarkUntrusted(commit.UntrustedSource())
	for name, changes := range deltas {
		s.db.FindScope(commit.Ref, c, name).ApplyChanges(changes)
	}
	result := commit.Result
	step := result.Step
	t.Commits[step] = withoutStoreFields(commit)
	result.Sequence = c.Sequence
	t.Steps = append(t.Steps, result)
	slices.SortFunc(t.Steps, func(a, b execution.Result) int { return a.Step - b.Step })
	journal := t.Journals[step]
	s.journal.KeepRecording(t, step, commit.Journal)
	delete(t.Journals, step)
	c.LastActivity = s.db.Now()
	if commit.Outcome != session.OutcomeOpen {
		s.closeTurn(c, t, commit.Outcome)
	}
	if len(result.Pending) > 0 {
		c.WaitingTurn, t.WaitingJournal = t.ID, journal
	}
}

// delta is a change of state by key. An empty value removes its key.
type delta = map[string]json.RawMessage

// splitByScope groups changes of state by the scope of their keys.
func splitByScope(changes delta) map[memory.Scope]delta {
	deltas := map[memory.Scope]delta{}
	for key, value := range changes {
		name := memory.ScopeOf(key)
		if deltas[name] == nil {
			deltas[name] = delta{}
		}
		deltas[name][key] = value
	}
	return deltas
}

// withoutStoreFields returns a commit without its epoch, its journal, and the fields that the store sets. Two
// commits of a step are the same if the returned values are equal.
func withoutStoreFields(c memory.Commit) memory.Commit {
	c.Epoch, c.Result.Sequence, c.Journal = 0, 0, nil
	c.Messages = slices.Clone(c.Messages)
	for i := range c.Messages {
		m := &c.Messages[i]
		m.Sequence, m.Turn, m.Time = 0, 0, time.Time{}
	}
	return c
}
