package turns

import (
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// origin is the earlier turn whose place a new one takes. At most one field is set.
type origin struct{ waiting, failed *db.Turn }

// findOrigin returns the origin of a new turn. Modes: turn_not_open; key_reused when a copy would begin a
// session that exists.
func (s *Turns) findOrigin(op string, c *db.Session, b memory.Begin) (origin, error) {
	waiting, err := s.findWaiting(op, c, b)
	if err != nil {
		return origin{}, err
	}
	failed, err := s.findFailed(op, c, b)
	if err != nil {
		return origin{}, err
	}
	if c != nil && b.Copy != nil {
		return origin{}, storeerror.SessionExists(op, b.Ref)
	}
	return origin{waiting, failed}, nil
}

// findWaiting returns the turn with waiting calls that the new one continues, or nil. Modes:
// turn_not_open.
func (s *Turns) findWaiting(op string, c *db.Session, b memory.Begin) (*db.Turn, error) {
	if b.Continues == "" {
		return nil, nil //nolint:nilnil // the turn continues none
	}
	if c == nil || c.WaitingTurn != b.Continues {
		return nil, storeerror.NotWaiting(op, b.Continues)
	}
	waiting := s.db.FindTurn(c, b.Continues)
	if waiting == nil {
		return nil, storeerror.WaitExpired(op, b.Continues)
	}
	return waiting, nil
}

// findFailed returns the failed turn that the new one resumes, or nil. Modes: turn_not_open.
func (s *Turns) findFailed(op string, c *db.Session, b memory.Begin) (*db.Turn, error) {
	if b.Resumes == "" {
		return nil, nil //nolint:nilnil // the turn resumes none
	}
	failed := s.db.FindTurn(c, b.Resumes)
	switch {
	case failed == nil:
		return nil, storeerror.ResumeExpired(op, b.Resumes)
	case failed.Outcome != session.OutcomeFailed || failed.Number != c.Turns || !hasMessage(c, failed.First):
		return nil, storeerror.NotResumable(op, b.Resumes)
	}
	return failed, nil
}

// hasMessage reports whether the session still has the message that a turn began with (0 means that it
// began without one).
func hasMessage(c *db.Session, first int64) bool {
	return first == 0 || slices.ContainsFunc(c.Log, func(m conversation.Message) bool { return m.Sequence == first })
}

// continueWaiting gives a turn the steps of a turn whose last step waits, and the journal of that step.
func continueWaiting(t, waiting *db.Turn, b memory.Begin) {
	finished := waiting.Steps[:len(waiting.Steps)-1]
	t.ContinuedStep = waiting.Steps[len(finished)].Step
	t.Continues, t.Answers = b.Continues, slices.Clone(b.Answers)
	t.Attempt, t.Steps, t.First, t.Untrusted = waiting.Attempt, slices.Clone(finished), waiting.First, waiting.Untrusted
	t.Commits = maps.Clone(waiting.Commits)
	delete(t.Commits, t.ContinuedStep)
	for step, c := range t.Commits {
		c.TurnID = t.ID
		t.Commits[step] = c
	}
	t.Journals[t.ContinuedStep] = waiting.WaitingJournal
	delete(waiting.Recordings, t.ContinuedStep)
}

// resumeFailed gives a turn the journals of a failed turn, except those of inherited steps.
func resumeFailed(t, failed *db.Turn, b memory.Begin) {
	t.Origin = failed.Origin
	if t.Origin == "" {
		t.Origin = failed.ID
	}
	t.Attempt, t.First, t.Untrusted = failed.Attempt, failed.First, failed.Untrusted
	t.Journals = maps.Clone(failed.Journals)
	if t.Journals == nil {
		t.Journals = map[int][]execution.Entry{}
	}
	for _, r := range b.Inherited {
		delete(t.Journals, r.Step)
	}
	failed.Journals = nil
}

// inheritSteps gives a turn the finished steps of an earlier one.
func inheritSteps(t *db.Turn, b memory.Begin) {
	for _, r := range b.InheritedSteps() {
		t.Steps = append(t.Steps, r)
		t.Commits[r.Step] = memory.Commit{}
	}
}

// newMessages returns all messages that the turn begins with.
func newMessages(b memory.Begin) []conversation.Message {
	if b.Copy == nil {
		return b.UserMessages()
	}
	_, history := b.Copy.Summary()
	return slices.Concat(history, b.UserMessages(), b.Copy.StepMessages)
}

// copyHistory begins a session with the history and the state of another, if the request has a copy.
func copyHistory(c *db.Session, t *db.Turn, b memory.Begin) {
	if b.Copy == nil {
		return
	}
	summary, history := b.Copy.Summary()
	if summary != nil {
		c.Sequence++
		c.Summary, c.Summarized = summary.Text, c.Sequence
	}
	for _, m := range history {
		c.Sequence++
		written := m.Time
		m = m.Stored()
		m.Sequence, m.Turn, m.Time = c.Sequence, 0, written
		c.Log = append(c.Log, m)
	}
	t.Sequence = c.Sequence
	if len(b.Copy.State) > 0 {
		c.Scope.Change(b.Copy.State)
	}
}

// appendStepMessages appends the messages of the inherited steps of a copy, after the turn's own message.
func (s *Turns) appendStepMessages(c *db.Session, t *db.Turn, b memory.Begin) {
	if b.Copy == nil {
		return
	}
	first := len(c.Log)
	s.db.Append(c, t, b.Copy.StepMessages...)
	for i, m := range b.Copy.StepMessages {
		c.Log[first+i].Time = m.Time
	}
}
