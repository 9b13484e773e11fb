// Package recorder writes the journal of a running step to the memory tier.
package recorder

import (
	"context"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// Limits of one write to a journal, beside MaxWindowBytes.
const (
	maxEntries = 256
	entryBytes = 256 // about what an entry has beside its texts
)

// Recorder is the execution.Journal of one running step over a Journal. Writes follow each
// other; what is recorded meanwhile goes with the next. So a step whose tools only read
// waits for no write at all.
type Recorder struct {
	put   func([]execution.Entry) error               // repeats itself until the step ends
	known map[int]map[execution.Phase]execution.Entry // of the attempts before this one

	end    context.CancelCauseFunc
	writer sync.WaitGroup

	mu      sync.Mutex
	pending []execution.Entry
	due     int // of pending, from the first, are to be written; those behind are late
	writing bool
	closed  bool
	err     error
	changed chan struct{} // closed and replaced whenever a write ends
}

// New returns the journal of a step. One that was tried before is read first. A write
// that is refused ends the step: end is called with the reason. Writes are repeated until ctx
// ends, which is the step's. Close it, end ctx, and then Wait.
func New(ctx context.Context, end context.CancelCauseFunc, store memory.Journal, hold memory.Lease, step int, triedBefore bool) (*Recorder, error) {
	j := &Recorder{end: end, changed: make(chan struct{}), known: map[int]map[execution.Phase]execution.Entry{}}
	j.put = func(entries []execution.Entry) (err error) {
		defer panics.Recover("memory.Record", &err)
		_, err = retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, store.Record(ctx, hold, step, entries)
		})
		return err
	}
	for after := 0; triedBefore; {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]execution.Entry, error) {
			return store.LoadJournal(ctx, hold, step, after)
		})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if j.known[e.Number] == nil {
				j.known[e.Number] = map[execution.Phase]execution.Entry{}
			}
			j.known[e.Number][e.Phase] = e
			after = e.Number
		}
	}
	return j, nil
}

// Replay implements execution.Journal.
func (j *Recorder) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	e, ok := j.known[number][phase]
	return e, ok
}

// Record implements execution.Journal.
func (j *Recorder) Record(e execution.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil || j.closed {
		return
	}
	late := e.Late
	e.Late = false
	j.pending = append(j.pending, e)
	if !late {
		j.due = len(j.pending)
		j.begin()
	}
}

// begin starts to write what is due, unless a write is running. Callers hold the lock.
func (j *Recorder) begin() {
	if !j.writing && j.due > 0 && j.err == nil && !j.closed {
		j.writing = true
		j.writer.Go(j.write)
	}
}

// write stores what is due, and what comes meanwhile, until nothing is left.
func (j *Recorder) write() {
	for {
		j.mu.Lock()
		batch := j.batch()
		if len(batch) == 0 || j.err != nil || j.closed {
			j.writing = false
			j.notify()
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
		err := j.put(batch)
		j.mu.Lock()
		j.pending, j.due = j.pending[len(batch):], j.due-len(batch)
		j.err = err
		refused := err != nil && !j.closed
		j.notify()
		j.mu.Unlock()
		if refused {
			j.end(err)
		}
	}
}

// batch is what goes into one write. Callers hold the lock.
func (j *Recorder) batch() []execution.Entry {
	size := 0
	for i, e := range j.pending[:j.due] {
		size += sizeOf(e)
		if i == maxEntries || i > 0 && size > memory.MaxWindowBytes {
			return j.pending[:i:i]
		}
	}
	return j.pending[:j.due:j.due]
}

func sizeOf(e execution.Entry) int {
	return len(e.Text) + conversation.Size(e.Reply) + len(e.Arguments) + len(e.Given) + entryBytes
}

// Unwritten are the entries that are not known to be stored, for the commit of a step that is
// recorded. More than that may bring are written first.
func (j *Recorder) Unwritten(ctx context.Context) ([]execution.Entry, error) {
	for {
		j.mu.Lock()
		size, left := 0, slices.Clone(j.pending)
		j.mu.Unlock()
		for _, e := range left {
			size += sizeOf(e)
		}
		if size <= memory.MaxCommitJournal && len(left) <= maxEntries {
			return left, nil
		}
		if err := j.Sync(ctx); err != nil {
			return nil, err
		}
	}
}

// DropLate forgets the late entries behind all others, but for what the step was given: a step
// that failed has not said what was to be its last reply, and an attempt behind it asks for one anew.
func (j *Recorder) DropLate() {
	j.mu.Lock()
	defer j.mu.Unlock()
	late := slices.DeleteFunc(slices.Clone(j.pending[j.due:]), func(e execution.Entry) bool { return e.Number > 0 })
	j.pending = append(j.pending[:j.due:j.due], late...)
}

func (j *Recorder) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// errRecorderClosed is for code of an agent that goes on behind the end of its step.
var errRecorderClosed = failure.New(failure.AgentState, "agent.ExecuteStep", "the step has ended; nothing of it can be journaled any more")

// Sync implements execution.Journal.
func (j *Recorder) Sync(ctx context.Context) error {
	for {
		j.mu.Lock()
		j.due = len(j.pending)
		j.begin()
		err, idle, changed := j.err, len(j.pending) == 0, j.changed
		if err == nil && j.closed {
			err = errRecorderClosed
		}
		j.mu.Unlock()
		if err != nil || idle {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends the journal before the commit of its step: the commit stands for all that is
// not written yet. A write under way ends with the step's context; Wait waits for it.
func (j *Recorder) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// Wait returns when no write is under way.
func (j *Recorder) Wait() { j.writer.Wait() }
