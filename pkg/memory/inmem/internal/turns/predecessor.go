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

// predecessor is the earlier turn that a new turn replaces. At most one field is set.
type predecessor struct{ waiting, failed *db.Turn }

// findPredecessor returns the predecessor of a new turn. Modes: turn_not_open; key_reused when the session of a
// copy already exists.
func (s *Turns) findPredecessor(op string, c *db.Session, b memory.Begin) (predecessor, error) {
	waiting, err := s.findWaiting(op, c, b)
	if err != nil {
		return predecessor{}, err
	}
	failed, err := s.findFailed(op, c, b)
	if err != nil {
		return predecessor{}, err
	}
	if c != nil && b.Predecessor.Copy != nil {
		return predecessor{}, storeerror.SessionExists(op, b.Ref)
	}
	return predecessor{waiting, failed}, nil
}

// findWaiting returns the turn with pending calls that the new turn continues (nil if none). Modes: turn_not_open.
func (s *Turns) findWaiting(op string, c *db.Session, b memory.Begin) (*db.Turn, error) {
	if b.Predecessor.Continues == "" {
		return nil, nil //nolint:nilnil // the turn continues none
	}
	if c == nil || c.WaitingTurn != b.Predecessor.Continues {
		return nil, storeerror.NotWaiting(op, b.Predecessor.Continues)
	}
	waiting := s.db.FindTurn(c, b.Predecessor.Continues)
	if waiting == nil {
		return nil, storeerror.WaitExpired(op, b.Predecessor.Continues)
	}
	return waiting, nil
}

// findFailed returns the failed turn that the new turn resumes (nil if none). Modes: turn_not_open.
func (s *Turns) findFailed(op string, c *db.Session, b memory.Begin) (*db.Turn, error) {
	if b.Predecessor.Resumes == "" {
		return nil, nil //nolint:nilnil // the turn resumes none
	}
	failed := s.db.FindTurn(c, b.Predecessor.Resumes)
	switch {
	case failed == nil:
		return nil, storeerror.ResumeExpired(op, b.Predecessor.Resumes)
	case failed.Outcome != session.OutcomeFailed || failed.Number != c.Turns || !hasMessage(c, failed.StartSequence):
		return nil, storeerror.NotResumable(op, b.Predecessor.Resumes)
	}
	return failed, nil
}

// hasMessage reports whether the session still has the message with this sequence. It returns true for sequence 0,
// which means that the turn began without a message.
func hasMessage(c *db.Session, sequence int64) bool {
	return sequence == 0 || slices.ContainsFunc(c.Log, func(m conversation.Message) bool { return m.Sequence == sequence })
}

// copyWaitingTurn copies the finished steps of a waiting turn and the journals of its waiting steps into the new turn.
func copyWaitingTurn(t, waiting *db.Turn, b memory.Begin) {
	t.Continues, t.Answers = b.Predecessor.Continues, slices.Clone(b.Predecessor.Answers)
	t.Attempt, t.StartSequence, t.UntrustedSource = waiting.Attempt, waiting.StartSequence, waiting.UntrustedSource
	for _, r := range waiting.Steps {
		if len(r.Pending) > 0 {
			t.ContinuedSteps = append(t.ContinuedSteps, r.Step)
			t.Journals[r.Step] = waiting.WaitingJournals[r.Step]
			delete(waiting.Recordings, r.Step)
			continue
		}
		r.Inherited = true
		t.Steps = append(t.Steps, r)
		t.Commits[r.Step] = memory.Commit{}
	}
}

// copyFailedTurn moves the journals of a failed turn to the new turn, and drops those of inherited steps. It
// copies the attempt, the start and the untrusted source, and sets the origin.
func copyFailedTurn(t, failed *db.Turn, b memory.Begin) {
	t.OriginTurnID = failed.OriginTurnID
	if t.OriginTurnID == "" {
		t.OriginTurnID = failed.ID
	}
	t.Attempt, t.StartSequence, t.UntrustedSource = failed.Attempt, failed.StartSequence, failed.UntrustedSource
	t.Journals = maps.Clone(failed.Journals)
	if t.Journals == nil {
		t.Journals = map[int][]execution.Entry{}
	}
	for _, r := range b.Predecessor.Inherited {
		delete(t.Journals, r.Step)
	}
	failed.Journals = nil
}

// inheritSteps copies the finished steps of an earlier turn into the new turn.
func inheritSteps(t *db.Turn, b memory.Begin) {
	for _, r := range b.InheritedSteps() {
		t.Steps = append(t.Steps, r)
		t.Commits[r.Step] = memory.Commit{}
	}
}

// newMessages returns all messages that the turn adds to the session when it begins.
func newMessages(b memory.Begin) []conversation.Message {
	if b.Predecessor.Copy == nil {
		return b.UserMessages()
	}
	_, history := b.Predecessor.Copy.SplitSummary()
	return slices.Concat(history, b.UserMessages(), b.Predecessor.Copy.StepMessages)
}

// copiedRounds returns the messages of all rounds with which a copy begins.
func copiedRounds(b memory.Begin) []conversation.Message {
	var all []conversation.Message
	if b.Predecessor.Copy != nil {
		for _, steps := range b.Predecessor.Copy.Rounds {
			for _, r := range steps {
				all = append(all, r.Messages...)
			}
		}
	}
	return all
}

// copyHistory stores the history and the state of a copy in the new session, if the request has a copy.
func copyHistory(c *db.Session, t *db.Turn, b memory.Begin) {
	if b.Predecessor.Copy == nil {
		return
	}
	summary, history := b.Predecessor.Copy.SplitSummary()
	if summary != nil {
		c.LastSequence++
		c.Summary, c.Size.Summarized = summary.Text, c.LastSequence
	}
	for _, m := range history {
		c.LastSequence++
		written := m.Time
		m = m.WithoutData()
		m.Sequence, m.Turn, m.Time = c.LastSequence, 0, written
		c.Log = append(c.Log, m)
	}
	t.Sequence = c.LastSequence
	for agent, rounds := range b.Predecessor.Copy.Rounds {
		if len(rounds) > 0 {
			c.Rounds[agent] = slices.Clone(rounds)
		}
	}
	if len(b.Predecessor.Copy.State) > 0 {
		c.Scope.ApplyChanges(b.Predecessor.Copy.State)
	}
}

// appendStepMessages appends the messages of a copy's inherited steps, after the turn's own message.
func (s *Turns) appendStepMessages(c *db.Session, t *db.Turn, b memory.Begin) {
	if b.Predecessor.Copy == nil {
		return
	}
	first := len(c.Log)
	s.db.AppendMessages(c, t, b.Predecessor.Copy.StepMessages...)
	for i, m := range b.Predecessor.Copy.StepMessages {
		c.Log[first+i].Time = m.Time
	}
}
