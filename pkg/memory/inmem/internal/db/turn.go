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
	UntrustedSource string                    // untrusted source of the session when the turn began (empty means none)
	ClosedAt        time.Time                 // zero while the turn is open
	Commits         map[int]memory.Commit     // by step, without the fields that the store sets
	Journals        map[int][]execution.Entry // by step
	Recordings      map[int]Recording         // journals of finished steps, by step

	// WaitingJournal is the journal of the turn's last step while calls of that step wait for answers.
	WaitingJournal []execution.Entry
	// ContinuedStep is the number of the step that this turn continues with its journal, because the calls of that
	// step were answered (0 means none).
	ContinuedStep int
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

// RunningStep returns the number of the step after the last committed step, or of the continued step if that is
// higher.
func (t *Turn) RunningStep() int {
	last := 0
	if len(t.Steps) > 0 {
		last = t.Steps[len(t.Steps)-1].Step
	}
	return max(last+1, t.ContinuedStep)
}

// HasUncommittedContinuedStep reports whether the step that this turn continues is not committed yet. It must be
// committed before any other step.
func (t *Turn) HasUncommittedContinuedStep() bool {
	return t.ContinuedStep > 0 && !t.HasCommitted(t.ContinuedStep)
}
