package inmem

import (
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// resumed is the turn that failed and whose place the new one takes; nil when it takes none.
// Modes: turn_not_open.
func (s *Store) resumed(op string, c *conversed, b memory.Begin) (*turn, error) {
	if b.Resumes == "" {
		return nil, nil
	}
	failed := s.turn(c, b.Resumes)
	switch {
	case failed == nil:
		return nil, storeerror.ResumeExpired(op, b.Resumes)
	case failed.Outcome != session.OutcomeFailed || failed.Number != c.Turns || !c.holds(failed.first):
		return nil, storeerror.NotResumable(op, b.Resumes)
	}
	return failed, nil
}

// holds reports whether the session has the message with which a turn began; 0: it had none.
func (c *conversed) holds(first int64) bool {
	return first == 0 || slices.ContainsFunc(c.log, func(m conversation.Message) bool { return m.Sequence == first })
}

// resume puts a turn in the place of one that failed.
func (t *turn) resume(failed *turn, b memory.Begin) {
	t.Origin = failed.Origin
	if t.Origin == "" {
		t.Origin = failed.ID
	}
	t.Attempt, t.first, t.source = failed.Attempt, failed.first, failed.source
	t.journals = maps.Clone(failed.journals)
	if t.journals == nil {
		t.journals = map[int][]execution.Entry{}
	}
	for _, r := range b.Inherited {
		delete(t.journals, r.Step)
	}
	failed.journals = nil
}

// inherit makes the steps of an earlier turn those of this one.
func (t *turn) inherit(b memory.Begin) {
	for _, r := range b.InheritedSteps() {
		t.Steps = append(t.Steps, r)
		t.commits[r.Step] = memory.Commit{}
	}
}

// brought are the messages with which a turn begins.
func brought(b memory.Begin) []conversation.Message {
	if b.Copy == nil {
		return b.UserMessages()
	}
	_, history := b.Copy.Summary()
	return slices.Concat(history, b.UserMessages(), b.Copy.StepMessages)
}

// copied begins a session as another one was.
func (c *conversed) copied(t *turn, b memory.Begin) {
	if b.Copy == nil {
		return
	}
	summary, history := b.Copy.Summary()
	if summary != nil {
		c.Sequence++
		c.summary, c.Summarized = summary.Text, c.Sequence
	}
	for _, m := range history {
		c.Sequence++
		at := m.Time
		m = m.Stored()
		m.Sequence, m.Turn, m.Time = c.Sequence, 0, at
		c.log = append(c.log, m)
	}
	t.Sequence = c.Sequence
	if len(b.Copy.State) > 0 {
		c.state.change(b.Copy.State)
	}
}

// follow appends what the inherited steps of a copy had said, behind the turn's own message.
func (s *Store) follow(c *conversed, t *turn, b memory.Begin) {
	if b.Copy == nil {
		return
	}
	first := len(c.log)
	s.say(c, t, b.Copy.StepMessages...)
	for i, m := range b.Copy.StepMessages {
		c.log[first+i].Time = m.Time
	}
}
