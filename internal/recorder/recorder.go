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

// These constants limit one write to a journal, besides memory.MaxWindowBytes.
const (
	maxBatchEntries    = 256
	entryOverheadBytes = 256 // estimated size of an entry without its texts
)

// Recorder is the execution.Journal of one running step. It writes the entries to a memory.Journal in the
// background, one write at a time. Entries recorded during a write go into the next one. So a step whose tools
// only read never waits for a write.
type Recorder struct {
	store          func([]execution.Entry) error               // stores entries and retries until the step ends
	earlierEntries map[int]map[execution.Phase]execution.Entry // entries of earlier attempts

	endStep context.CancelCauseFunc
	writer  sync.WaitGroup

	mu        sync.Mutex
	pending   []execution.Entry
	dueCount  int               // number of pending entries to write now; the others are late entries
	stored    []execution.Entry // durable entries, including those of earlier attempts
	isWriting bool
	closed    bool
	err       error
	changed   chan struct{} // closed and replaced when a write ends
}

// New returns the journal of a step. If the step was tried before, New first reads the entries of earlier
// attempts. The recorder retries a failed write until ctx, the context of the step, ends. A rejected write ends
// the step: the recorder calls end with the error. To finish, Close the recorder, cancel ctx, and then call Wait.
func New(ctx context.Context, end context.CancelCauseFunc, store memory.Journal, hold memory.Lease, step int, triedBefore bool) (*Recorder, error) {
	j := &Recorder{endStep: end, changed: make(chan struct{}), earlierEntries: map[int]map[execution.Phase]execution.Entry{}}
	j.store = func(entries []execution.Entry) (err error) {
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
			if j.earlierEntries[e.Number] == nil {
				j.earlierEntries[e.Number] = map[execution.Phase]execution.Entry{}
			}
			j.earlierEntries[e.Number][e.Phase] = e
			j.stored = append(j.stored, e)
			after = e.Number
		}
	}
	return j, nil
}

// Replay implements execution.Journal.
func (r *Recorder) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	e, ok := r.earlierEntries[number][phase]
	return e, ok
}

// Record implements execution.Journal.
func (r *Recorder) Record(e execution.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.closed {
		return
	}
	late := e.Late
	e.Late = false
	r.pending = append(r.pending, e)
	if !late {
		r.dueCount = len(r.pending)
		r.startWriter()
	}
}

// startWriter starts writing the due entries, unless a write is already running. The caller holds the lock.
func (r *Recorder) startWriter() {
	if !r.isWriting && r.dueCount > 0 && r.err == nil && !r.closed {
		r.isWriting = true
		r.writer.Go(r.writeDue)
	}
}

// writeDue writes batches of due entries until none are left.
func (r *Recorder) writeDue() {
	for {
		r.mu.Lock()
		batch := r.nextBatch()
		if len(batch) == 0 || r.err != nil || r.closed {
			r.isWriting = false
			r.notify()
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		err := r.store(batch)
		r.mu.Lock()
		r.pending, r.dueCount = r.pending[len(batch):], r.dueCount-len(batch)
		if r.err = err; err == nil {
			r.stored = append(r.stored, batch...)
		}
		rejected := err != nil && !r.closed
		r.notify()
		r.mu.Unlock()
		if rejected {
			r.endStep(err)
		}
	}
}

// nextBatch returns the entries of the next write. The caller holds the lock.
func (r *Recorder) nextBatch() []execution.Entry {
	size := 0
	for i, e := range r.pending[:r.dueCount] {
		size += sizeOf(e)
		if i == maxBatchEntries || i > 0 && size > memory.MaxWindowBytes {
			return r.pending[:i:i]
		}
	}
	return r.pending[:r.dueCount:r.dueCount]
}

func sizeOf(e execution.Entry) int {
	return len(e.Text) + conversation.Size(e.Reply) + len(e.Arguments) + len(e.StepInput) + entryOverheadBytes
}

// Unwritten returns the entries that may not be stored yet, so that the commit of the step can carry them. If they
// exceed the limit of a commit, it first writes the journal.
func (r *Recorder) Unwritten(ctx context.Context) ([]execution.Entry, error) {
	for {
		r.mu.Lock()
		size, left := 0, slices.Clone(r.pending)
		r.mu.Unlock()
		for _, e := range left {
			size += sizeOf(e)
		}
		if size <= memory.MaxCommitJournal && len(left) <= maxBatchEntries {
			return left, nil
		}
		if err := r.Sync(ctx); err != nil {
			return nil, err
		}
	}
}

// ReferToEntries returns the rounds of a commit. A message whose text and tool calls are in a durable entry of the
// journal has the number of that entry instead of them.
func (r *Recorder) ReferToEntries(rounds []memory.RoundMessage) []memory.RoundMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	rounds = slices.Clone(rounds)
	for i := range rounds {
		round := &rounds[i]
		if at := slices.IndexFunc(r.stored, func(e execution.Entry) bool { return hasContent(e, round.Message) }); at >= 0 {
			round.Entry, round.Text, round.ToolCalls = r.stored[at].Number, "", nil
		}
	}
	return rounds
}

// hasContent reports whether an entry has the text and the tool calls of a message.
func hasContent(e execution.Entry, m conversation.Message) bool {
	switch {
	case e.Phase != execution.Done || e.Number == 0 || e.Mode != "" && e.Tool == "":
		return false
	case m.Role == conversation.RoleTool:
		return e.Tool != "" && e.Text == m.Text
	case m.Role == conversation.RoleAssistant:
		return e.Tool == "" && !e.SideCall && e.Reply.Text == m.Text && slices.Equal(e.Reply.ToolCalls, m.ToolCalls)
	default:
		return false
	}
}

// DropLate drops the late entries at the end, except the input of the step. The last reply of a failed step was
// not delivered, and the next attempt asks the model again.
func (r *Recorder) DropLate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	late := slices.DeleteFunc(slices.Clone(r.pending[r.dueCount:]), func(e execution.Entry) bool { return e.Number > 0 })
	r.pending = append(r.pending[:r.dueCount:r.dueCount], late...)
}

func (r *Recorder) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// errRecorderClosed is returned to agent code that still runs after its step has ended.
var errRecorderClosed = failure.New(failure.AgentState, "agent.ExecuteStep", "the step has ended; nothing of it can be journaled any more")

// Sync implements execution.Journal.
func (r *Recorder) Sync(ctx context.Context) error {
	for {
		r.mu.Lock()
		r.dueCount = len(r.pending)
		r.startWriter()
		err, idle, changed := r.err, len(r.pending) == 0, r.changed
		if err == nil && r.closed {
			err = errRecorderClosed
		}
		r.mu.Unlock()
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

// Close stops recording before the commit of the step, which carries all unwritten entries. A write in progress
// ends with the step's context; Wait waits for it.
func (r *Recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Wait blocks until no write is in progress.
func (r *Recorder) Wait() { r.writer.Wait() }
