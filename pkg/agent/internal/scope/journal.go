package scope

import (
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Journal is the journal of a step as one agent sees it. The agent counts its calls from 1; the journal of the step, the
// idempotency keys and the ids of waiting calls have the numbers of the step.
type Journal struct {
	execution.Journal // of the step
	calls             *Calls
	step              execution.Step
	silent            bool  // what the agent says is not part of what the step says
	numbers           []int // of the step, by the agent's own numbers
}

// NewJournal returns the journal of one agent of a step.
func NewJournal(step execution.Step, calls *Calls, aside bool) *Journal {
	return &Journal{Journal: step.Journal, calls: calls, step: step, silent: aside}
}

// number returns the number of the step. The loop asks for its own numbers in order.
func (j *Journal) number(own int) int {
	for len(j.numbers) < own {
		j.numbers = append(j.numbers, j.calls.Next())
	}
	return j.numbers[own-1]
}

// Key returns the idempotency key of a call, which is the same in all attempts.
func (j *Journal) Key(own int) string {
	return CallKey(j.step, j.number(own))
}

// CallKey returns the idempotency key of the call with a number in a step.
func CallKey(step execution.Step, number int) string {
	return stepjournal.CallKey(step.CallTurn(), step.Number, number)
}

// ID returns the id of a call that waits. Answers name it.
func (j *Journal) ID(own int) string {
	return pendingcall.ID(j.step.Turn, j.step.Number, j.number(own))
}

// Replay implements execution.Journal.
func (j *Journal) Replay(own int, phase execution.Phase) (execution.Entry, bool) {
	e, ok := j.Journal.Replay(j.number(own), phase)
	e.Number = own
	return e, ok
}

// Record implements execution.Journal.
func (j *Journal) Record(e execution.Entry) {
	e.Number = j.number(e.Number)
	e.SideCall = e.SideCall || j.silent
	j.Journal.Record(e)
}

// ForLoop returns the journal for the loop. It is nil if the step has no journal, and sealed if the step's journal
// is sealed.
func (j *Journal) ForLoop() execution.Journal {
	switch ofStep := j.Journal.(type) {
	case nil:
		return nil
	case stepjournal.SealedJournal:
		return sealedJournal{j, ofStep}
	}
	return j
}

// sealedJournal is the journal of an agent whose step has ended and is run again.
type sealedJournal struct {
	*Journal
	sealed stepjournal.SealedJournal // of the step
}

// AddUnexpectedCall implements stepjournal.SealedJournal.
func (s sealedJournal) AddUnexpectedCall(now execution.Entry) error {
	now.Number = s.number(now.Number)
	return s.sealed.AddUnexpectedCall(now)
}

// AddRepeatedCall implements stepjournal.SealedJournal.
func (s sealedJournal) AddRepeatedCall(own int, digest string) {
	s.sealed.AddRepeatedCall(s.number(own), digest)
}
