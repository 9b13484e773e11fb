package scope

import (
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Journal is one agent's view of the journal of a step. The agent counts its calls from 1. In the step's journal,
// in idempotency keys and in the ids of waiting calls they have the numbers of the step.
type Journal struct {
	execution.Journal // journal of the step
	calls             *CallNumbers
	step              execution.Step
	isSilent          bool  // the agent's text is not part of the step's text
	stepNumbers       []int // step numbers, indexed by the agent's own numbers
}

// NewJournal returns the journal of one agent of a step.
func NewJournal(step execution.Step, calls *CallNumbers, isSilent bool) *Journal {
	return &Journal{Journal: step.Journal, calls: calls, step: step, isSilent: isSilent}
}

// stepNumber returns the number of a call in the step. The loop asks for its own numbers in order.
func (j *Journal) stepNumber(own int) int {
	for len(j.stepNumbers) < own {
		j.stepNumbers = append(j.stepNumbers, j.calls.Next())
	}
	return j.stepNumbers[own-1]
}

// Key returns the idempotency key of a call, which is the same in all attempts.
func (j *Journal) Key(own int) string {
	return CallKey(j.step, j.stepNumber(own))
}

// CallKey returns the idempotency key of a call, given its number in the step.
func CallKey(step execution.Step, number int) string {
	return stepjournal.CallKey(step.CallTurn(), step.Number, number)
}

// ID returns the id of a waiting call. Answers refer to the call by it.
func (j *Journal) ID(own int) string {
	return pendingcall.ID(j.step.Turn, j.step.Number, j.stepNumber(own))
}

// Replay implements execution.Journal.
func (j *Journal) Replay(own int, phase execution.Phase) (execution.Entry, bool) {
	e, ok := j.Journal.Replay(j.stepNumber(own), phase)
	e.Number = own
	return e, ok
}

// Record implements execution.Journal.
func (j *Journal) Record(e execution.Entry) {
	e.Number = j.stepNumber(e.Number)
	e.SideCall = e.SideCall || j.isSilent
	j.Journal.Record(e)
}

// ForLoop returns the journal to give to the loop. It is nil if the step has no journal, and sealed if the step's
// journal is sealed.
func (j *Journal) ForLoop() execution.Journal {
	switch ofStep := j.Journal.(type) {
	case nil:
		return nil
	case stepjournal.SealedJournal:
		return sealedJournal{j, ofStep}
	}
	return j
}

// sealedJournal is the journal of an agent in a step that has ended and is replayed.
type sealedJournal struct {
	*Journal
	sealed stepjournal.SealedJournal // sealed journal of the step
}

// AddUnexpectedCall implements stepjournal.SealedJournal.
func (s sealedJournal) AddUnexpectedCall(now execution.Entry) error {
	now.Number = s.stepNumber(now.Number)
	return s.sealed.AddUnexpectedCall(now)
}

// AddRepeatedCall implements stepjournal.SealedJournal.
func (s sealedJournal) AddRepeatedCall(own int, digest string) {
	s.sealed.AddRepeatedCall(s.stepNumber(own), digest)
}
