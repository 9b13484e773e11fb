package turns

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// CommitStep implements memory.Turns.
func (s *Turns) CommitStep(_ context.Context, commit memory.Commit) (int64, error) {
	const op = "memory.CommitStep"
	if err := commit.Check(op); err != nil {
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
	rounds, missing := resolveRounds(commit.Rounds, t.Journals[commit.Result.Step])
	made := commitParts{Commit: commit, deltas: splitByScope(commit.State), rounds: rounds}
	if err := s.checkCommit(op, c, t, made, missing); err != nil {
		return 0, err
	}
	s.applyCommit(c, t, made)
	return last, nil
}

// commitParts is a commit with its state by scope, and the messages of its rounds.
type commitParts struct {
	memory.Commit
	deltas map[memory.Scope]delta
	rounds []conversation.Message
}

// resolveRounds returns the messages of rounds, or the number of an entry that the journal lacks.
func resolveRounds(rounds []memory.RoundMessage, journal []execution.Entry) (messages []conversation.Message, missing int) {
	for _, r := range rounds {
		m, ok := r.Resolve(journal)
		if !ok {
			return nil, r.Entry
		}
		messages = append(messages, m.WithoutData())
	}
	return messages, 0
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
func (s *Turns) checkCommit(op string, c *db.Session, t *db.Turn, commit commitParts, missing int) error {
	step := commit.Result.Step
	switch {
	case t.HasCommitted(step):
		return db.NewStepCommittedError(op, t, step)
	case t.AwaitedStep(step) > 0:
		return storeerror.WaitingStepFirst(op, t.ID, step, t.AwaitedStep(step))
	case len(commit.Result.Pending) > 0 && step < t.RunningStep():
		return storeerror.NotLastStep(op, t.ID, step)
	case commit.Base != c.LastSequence:
		return failure.Newf(failure.BaseMismatch, op, "session %s ends with message %d and not %d; load the history again and repeat the step",
			c.ID, c.LastSequence, commit.Base).
			With("base_sequence", db.FormatDecimal(commit.Base)).With("last_sequence", db.FormatDecimal(c.LastSequence))
	case missing > 0:
		return storeerror.MissingEntry(op, step, missing)
	case !s.db.HasRoomWithRounds(c, commit.rounds, commit.Messages...):
		return s.db.NewSessionFullError(op, c)
	case commit.deltas[memory.ScopeUser] != nil && c.User == "":
		return db.NewNoUserError(op, c)
	}
	if changed := s.changedKeys(c, commit); len(changed) > 0 {
		return storeerror.KeysChanged(op, changed)
	}
	for name, changes := range commit.deltas {
		if !s.db.FindScope(commit.Ref, c, name).HasRoom(changes) {
			return db.NewScopeFullError(op, name)
		}
	}
	return nil
}

// changedKeys returns the keys that do not have their expected revision, sorted.
func (s *Turns) changedKeys(c *db.Session, commit commitParts) []string {
	var changed []string
	for _, key := range slices.Sorted(maps.Keys(commit.Expected)) {
		if s.db.FindScope(commit.Ref, c, memory.ScopeOf(key)).Keys[key] != commit.Expected[key] {
			changed = append(changed, key)
		}
	}
	return changed
}

// applyCommit stores a commit that checkCommit has accepted.
func (s *Turns) applyCommit(c *db.Session, t *db.Turn, commit commitParts) {
	s.db.AppendMessages(c, t, commit.Messages...)
	c.MarkUntrusted(commit.UntrustedSource())
	for name, changes := range commit.deltas {
		s.db.FindScope(commit.Ref, c, name).ApplyChanges(changes)
	}
	result := commit.Result
	step := result.Step
	t.Commits[step] = withoutStoreFields(commit.Commit)
	if len(commit.rounds) > 0 {
		c.Rounds[result.Agent] = append(c.Rounds[result.Agent], conversation.Rounds{Turn: t.Number, Step: step, After: commit.Base, Messages: commit.rounds})
	}
	result.Sequence = c.LastSequence
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
		c.WaitingTurn, t.WaitingJournals = t.ID, map[int][]execution.Entry{step: journal}
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

// withoutStoreFields returns a commit without its epoch, its journal, its expected revisions, and the fields that the store sets. Two
// commits of a step are the same if the returned values are equal.
func withoutStoreFields(c memory.Commit) memory.Commit {
	c.Epoch, c.Result.Sequence, c.Journal, c.Expected = 0, 0, nil, nil
	c.Messages = slices.Clone(c.Messages)
	for i := range c.Messages {
		m := &c.Messages[i]
		m.Sequence, m.Turn, m.Time = 0, 0, time.Time{}
	}
	return c
}
