package worker

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/wire"
)

// Limits of one write to the journal, those of troupe.v1.JournalRequest.
const (
	maxEntries    = 256
	maxEntryBytes = 3 << 20
)

// journal is the execution.Journal of one step over the memory service. Writes follow each
// other; what is recorded meanwhile goes with the next. So a step whose tools only read
// waits for no write at all.
type journal struct {
	put   func([]execution.Entry) error               // repeats itself until the step ends
	known map[int]map[execution.Phase]execution.Entry // of the attempts before this one

	end    context.CancelCauseFunc
	writer sync.WaitGroup

	mu      sync.Mutex
	pending []execution.Entry
	writing bool
	closed  bool
	err     error
	changed chan struct{} // closed and replaced whenever a write ends
}

// openJournal returns the journal of a step. One that was tried before is read first. A
// write that is refused ends the step.
func openJournal(ctx context.Context, end context.CancelCauseFunc, store memory.Journal, hold memory.Hold, step int, triedBefore bool) (*journal, error) {
	j := &journal{end: end, changed: make(chan struct{}), known: map[int]map[execution.Phase]execution.Entry{}}
	j.put = func(entries []execution.Entry) error {
		_, err := failure.Retry(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, store.Record(ctx, hold, step, entries)
		})
		return err
	}
	for after := 0; triedBefore; {
		page, err := failure.Retry(ctx, func(ctx context.Context) ([]execution.Entry, error) {
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
func (j *journal) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	e, ok := j.known[number][phase]
	return e, ok
}

// Record implements execution.Journal.
func (j *journal) Record(e execution.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil || j.closed {
		return
	}
	j.pending = append(j.pending, e)
	if !j.writing {
		j.writing = true
		j.writer.Go(j.write)
	}
}

// write stores what is pending, and what comes meanwhile, until nothing is left.
func (j *journal) write() {
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
		j.pending = j.pending[len(batch):]
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
func (j *journal) batch() []execution.Entry {
	size := 0
	for i, e := range j.pending {
		if size += proto.Size(wire.EntryToProto(e)); i == maxEntries || i > 0 && size > maxEntryBytes {
			return j.pending[:i:i]
		}
	}
	return slices.Clip(j.pending)
}

func (j *journal) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// errJournalClosed is for code of an agent that goes on behind the end of its step.
var errJournalClosed = failure.New(failure.AgentState, "agent.ExecuteStep", "the step has ended; nothing of it can be journaled any more")

// Sync implements execution.Journal.
func (j *journal) Sync(ctx context.Context) error {
	for {
		j.mu.Lock()
		err, idle, changed := j.err, len(j.pending) == 0, j.changed
		if err == nil && j.closed {
			err = errJournalClosed
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

// close ends the journal before the commit of its step: the commit stands for all that is
// not written yet. A write under way ends with the step's context; wait waits for it.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// wait returns when no write is under way.
func (j *journal) wait() { j.writer.Wait() }
