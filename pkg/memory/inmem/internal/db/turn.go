package db

import (
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Turn holds a turn and the stored data of its steps.
type Turn struct {
	session.Turn
	Fingerprint     string
	Holder          string                    // trace id of the caller that holds the turn, or held it last
	StartSequence   int64                     // sequence of the session's last message when the turn began, including its own message
	Before          int64                     // number of messages of the session before the turn
	UntrustedSource string                    // untrusted source of the session when the turn began (empty means none)
	ClosedAt        time.Time                 // zero while the turn is open
	Commits         map[int]memory.Commit     // by step, without the fields that the store sets
	Journals        map[int][]execution.Entry // by step
	Recordings      map[int]Recording         // journals of finished steps, by step

	// WaitingJournals are the journals of the steps whose calls wait for answers, by step.
	WaitingJournals map[int][]execution.Entry
	// ContinuedSteps are the numbers of the steps that this turn continues with their journals, because calls of such
	// steps were answered, in order.
	ContinuedSteps []int
}

// Recording is the journal of a finished step.
type Recording struct {
	Entries    []execution.Entry
	RecordedAt time.Time
}

// Snapshot returns a copy of the turn for callers.
func (t *Turn) Snapshot() session.Turn {
	seen := t.Turn
	seen.Steps, seen.Answers = slices.Clone(t.Steps), slices.Clone(t.Answers)
	return seen
}

// HasCommitted reports whether the step was committed.
func (t *Turn) HasCommitted(step int) bool {
	_, ok := t.Commits[step]
	return ok
}

// RunningStep returns the number of the step after the last committed step, or of the first continued step if that is
// higher.
func (t *Turn) RunningStep() int {
	last := 0
	if len(t.Steps) > 0 {
		last = t.Steps[len(t.Steps)-1].Step
	}
	if len(t.ContinuedSteps) > 0 {
		last = max(last, t.ContinuedSteps[0]-1)
	}
	return last + 1
}

// AwaitedStep returns a continued step that must be committed before the given step (0 means none). The steps that a
// turn continues come first, in any order.
func (t *Turn) AwaitedStep(step int) int {
	if slices.Contains(t.ContinuedSteps, step) {
		return 0
	}
	for _, continued := range t.ContinuedSteps {
		if !t.HasCommitted(continued) {
			return continued
		}
	}
	return 0
}
