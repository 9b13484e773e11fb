package inmem

import (
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// continued is the turn with calls that wait whose place the new one takes; nil when it takes
// none. Modes: turn_not_open.
func (s *Store) continued(op string, c *conversed, b memory.Begin) (*turn, error) {
	if b.Continues == "" {
		return nil, nil
	}
	if c == nil || c.WaitingTurn != b.Continues {
		return nil, storeerror.NotWaiting(op, b.Continues)
	}
	from := s.turn(c, b.Continues)
	if from == nil {
		return nil, storeerror.WaitExpired(op, b.Continues)
	}
	return from, nil
}

// goOn puts a turn in the place of one whose last step waits.
func (t *turn) goOn(from *turn, b memory.Begin) {
	done := from.Steps[:len(from.Steps)-1]
	t.inherits = from.Steps[len(done)].Step
	t.Continues, t.Answers = b.Continues, slices.Clone(b.Answers)
	t.Attempt, t.Steps, t.first, t.source = from.Attempt, slices.Clone(done), from.first, from.source
	t.commits = maps.Clone(from.commits)
	delete(t.commits, t.inherits)
	for step, c := range t.commits {
		c.TurnID = t.ID
		t.commits[step] = c
	}
	t.journals[t.inherits] = from.kept
	delete(from.recorded, t.inherits)
}

// leave gives up the calls that wait: the session has none any more.
func (c *conversed) leave() {
	if t := c.turns[c.WaitingTurn]; t != nil {
		t.kept = nil
	}
	c.WaitingTurn = ""
}

// waiting are the calls of the last step, which waits.
func (t *turn) waiting() []execution.Pending {
	return slices.Clone(t.Steps[len(t.Steps)-1].Pending)
}

// stopped reports whether the step that waited in the turn before is still to be done.
func (t *turn) stopped() bool { return t.inherits > 0 && !t.committed(t.inherits) }
