// Package replay runs a finished step again, to see whether the agent does the same (ADR 0027). Its Journal
// answers instead of models and tools, and finds the first difference from the recording.
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

var _ stepjournal.Sealed = (*Journal)(nil)

// Journal is the stepjournal.Sealed of a step over its recording. It stores nothing. It is safe for concurrent
// use.
type Journal struct {
	recorded map[int]map[execution.Phase]execution.Entry
	failed   bool // the step failed then, and the recording ends where it did

	mu              sync.Mutex
	used            map[int]bool // calls that were made again
	firstDifference *Difference
	changedRequests []ChangedRequest
	reachedEnd      bool // the step came to the end of what was recorded before it failed
}

// ChangedRequest is a model call whose request differs from the recorded one.
type ChangedRequest struct {
	Number int
	Parts  []string // instructions, messages, tools
}

// New returns the journal of a step with the given result, over the entries of its recording.
func New(entries []execution.Entry, was execution.Result) *Journal {
	j := &Journal{recorded: map[int]map[execution.Phase]execution.Entry{}, failed: was.Failure != nil, used: map[int]bool{}}
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

// Record implements execution.Journal. A repeated call must end as it did in the recording.
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
		j.note(callDifference(was, false, e))
	case ok && e.Tool != "" && (was.Status != e.Status || was.Text != e.Text):
		j.note(Difference{Kind: OtherOutcome, Number: e.Number, Subject: e.Tool, Recorded: formatOutcome(was), Now: formatOutcome(e)})
	}
	j.used[e.Number] = true
}

// Sync implements execution.Journal. There is nothing to store.
func (j *Journal) Sync(context.Context) error { return nil }

// Stray implements stepjournal.Sealed.
func (j *Journal) Stray(now execution.Entry) error {
	was, ok := j.recorded[now.Number][execution.Done]
	if !ok {
		was, ok = j.recorded[now.Number][execution.Intent]
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !ok && j.failed && j.firstDifference == nil && len(j.unusedCalls()) == 0 {
		j.reachedEnd = true
		return failure.New(failure.Nondeterminism, "replay", "the recording ends here, for the step failed")
	}
	d := callDifference(was, ok, now)
	j.note(d)
	return failure.New(failure.Nondeterminism, "replay", d.String())
}

// Asked implements stepjournal.Sealed.
func (j *Journal) Asked(number int, digest string) {
	was, ok := j.recorded[number][execution.Done]
	if !ok {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.used[number] = true
	if was.Tool != "" {
		return
	}
	if parts := journal.DifferentParts(was.Digest, digest); len(parts) > 0 {
		j.changedRequests = append(j.changedRequests, ChangedRequest{number, parts})
	}
}

// Note notes a difference that belongs to no call. Only the first one counts.
func (j *Journal) Note(d Difference) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(d)
}

// note does what Note does. Callers hold the lock.
func (j *Journal) note(d Difference) {
	if j.firstDifference == nil {
		j.firstDifference = &d
	}
}

// unusedCalls returns the recorded calls that were not made again, in order. Callers hold the lock.
func (j *Journal) unusedCalls() []int {
	var left []int
	for _, number := range slices.Sorted(maps.Keys(j.recorded)) {
		if _, done := j.recorded[number][execution.Done]; done && !j.used[number] {
			left = append(left, number)
		}
	}
	return left
}

// Calls returns how many calls of models and of tools were made again.
func (j *Journal) Calls() (models, tools int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for number := range j.used {
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

// ChangedRequests returns the model calls whose requests differ, by number.
func (j *Journal) ChangedRequests() []ChangedRequest {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedFunc(slices.Values(j.changedRequests), func(a, b ChangedRequest) int { return a.Number - b.Number })
}
