// Package replay checks whether an agent repeats a finished step in the same way (ADR 0027). Its Journal replaces
// models and tools by their recorded answers, and finds the first difference from the recording.
package replay

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

var _ stepjournal.SealedJournal = (*Journal)(nil)

// Journal is a stepjournal.SealedJournal that answers from the recording of a step. It stores nothing. It is safe
// for concurrent use.
type Journal struct {
	recorded   map[int]map[execution.Phase]execution.Entry
	stepFailed bool // whether the recorded step failed; the recording ends there

	mu              sync.Mutex
	repeatedCalls   map[int]bool // numbers of the calls that the replay repeated
	firstDifference *Difference
	changedRequests []ChangedRequest
	reachedEnd      bool // whether the replay reached the point where the recorded step failed
}

// ChangedRequest is a model call whose request differs from the recorded one.
type ChangedRequest struct {
	Number int
	Parts  []string // differing parts: instructions, messages, tools
}

// New returns a journal that answers from the entries of a recording. was is the recorded result of the step.
func New(entries []execution.Entry, was execution.Result) *Journal {
	j := &Journal{recorded: map[int]map[execution.Phase]execution.Entry{}, stepFailed: was.Failure != nil, repeatedCalls: map[int]bool{}}
	for _, e := range entries {
		if j.recorded[e.Number] == nil {
			j.recorded[e.Number] = map[execution.Phase]execution.Entry{}
		}
		j.recorded[e.Number][e.Phase] = e
	}
	return j
}

// Replay implements execution.Journal.
func (j *Journal) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	e, ok := j.recorded[number][phase]
	return e, ok
}

// Record implements execution.Journal. The outcome of a repeated call must equal the recorded one.
func (j *Journal) Record(e execution.Entry) {
	if e.Phase != execution.Done {
		return
	}
	was, ok := j.recorded[e.Number][execution.Done]
	_, begun := j.recorded[e.Number][execution.Intent]
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case !ok && !begun:
		j.addDifference(callDifference(was, false, e))
	case ok && e.Tool != "" && (was.Status != e.Status || was.Text != e.Text):
		j.addDifference(Difference{Kind: OtherOutcome, Number: e.Number, Subject: e.Tool, Recorded: formatOutcome(was), Now: formatOutcome(e)})
	}
	j.repeatedCalls[e.Number] = true
}

// Sync implements execution.Journal. It does nothing, because nothing is stored.
func (j *Journal) Sync(context.Context) error { return nil }

// AddUnexpectedCall implements stepjournal.SealedJournal.
func (j *Journal) AddUnexpectedCall(now execution.Entry) error {
	was, ok := j.recorded[now.Number][execution.Done]
	if !ok {
		was, ok = j.recorded[now.Number][execution.Intent]
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !ok && j.stepFailed && j.firstDifference == nil && len(j.unusedCalls()) == 0 {
		j.reachedEnd = true
		return failure.New(failure.Nondeterminism, "replay", "the recording ends here, because the step failed")
	}
	d := callDifference(was, ok, now)
	j.addDifference(d)
	return failure.New(failure.Nondeterminism, "replay", d.String())
}

// AddRepeatedCall implements stepjournal.SealedJournal.
func (j *Journal) AddRepeatedCall(number int, digest string) {
	was, ok := j.recorded[number][execution.Done]
	if !ok {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.repeatedCalls[number] = true
	if was.Tool != "" {
		return
	}
	if parts := journal.DifferentParts(was.Digest, digest); len(parts) > 0 {
		j.changedRequests = append(j.changedRequests, ChangedRequest{number, parts})
	}
}

// AddDifference adds a difference that does not belong to a call. The journal keeps only the first difference.
func (j *Journal) AddDifference(d Difference) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.addDifference(d)
}

// addDifference is AddDifference for callers that hold the lock.
func (j *Journal) addDifference(d Difference) {
	if j.firstDifference == nil {
		j.firstDifference = &d
	}
}

// unusedCalls returns the numbers of the recorded calls that the replay did not repeat, in order. The caller holds
// the lock.
func (j *Journal) unusedCalls() []int {
	var left []int
	for _, number := range slices.Sorted(maps.Keys(j.recorded)) {
		if _, done := j.recorded[number][execution.Done]; done && !j.repeatedCalls[number] {
			left = append(left, number)
		}
	}
	return left
}

// RepeatedCalls returns how many recorded calls of models and of tools the replay has repeated.
func (j *Journal) RepeatedCalls() (models, tools int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for number := range j.repeatedCalls {
		switch e, done := j.recorded[number][execution.Done]; {
		case !done:
		case e.Tool == "":
			models++
		default:
			tools++
		}
	}
	return models, tools
}

// ChangedRequests returns the model calls whose requests differ from the recorded ones, ordered by number.
func (j *Journal) ChangedRequests() []ChangedRequest {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedFunc(slices.Values(j.changedRequests), func(a, b ChangedRequest) int { return a.Number - b.Number })
}
