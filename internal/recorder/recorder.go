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
	maxEntries    = 256
	entryOverhead = 256 // estimated size of an entry without its texts
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
	stored    []execution.Entry // that are durable, including those of earlier attempts
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
func (j *Recorder) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	e, ok := j.earlierEntries[number][phase]
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
		j.dueCount = len(j.pending)
		j.startWriter()
	}
}

// startWriter starts writing the due entries, unless a write is already running. The caller holds the lock.
func (j *Recorder) startWriter() {
	if !j.isWriting && j.dueCount > 0 && j.err == nil && !j.closed {
		j.isWriting = true
		j.writer.Go(j.writeDue)
	}
}

// writeDue writes batches of due entries until none are left.
func (j *Recorder) writeDue() {
	for {
		j.mu.Lock()
		batch := j.nextBatch()
		if len(batch) == 0 || j.err != nil || j.closed {
			j.isWriting = false
			j.notify()
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
		err := j.store(batch)
		j.mu.Lock()
		j.pending, j.dueCount = j.pending[len(batch):], j.dueCount-len(batch)
		if j.err = err; err == nil {
			j.stored = append(j.stored, batch...)
		}
		rejected := err != nil && !j.closed
		j.notify()
		j.mu.Unlock()
		if rejected {
			j.endStep(err)
		}
	}
}

// nextBatch returns the entries of the next write. The caller holds the lock.
func (j *Recorder) nextBatch() []execution.Entry {
	size := 0
	for i, e := range j.pending[:j.dueCount] {
		size += sizeOf(e)
		if i == maxEntries || i > 0 && size > memory.MaxWindowBytes {
			return j.pending[:i:i]
		}
	}
	return j.pending[:j.dueCount:j.dueCount]
}

func sizeOf(e execution.Entry) int {
	return len(e.Text) + conversation.Size(e.Reply) + len(e.Arguments) + len(e.StepInput) + entryOverhead
}

// Unwritten returns the entries that may not be stored yet, so that the commit of the step can carry them. If they
// exceed the limit of a commit, it first writes the journal.
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

// Rounds returns messages as a commit stores them: without the text and the tool calls that a durable entry of the
// journal has.
func (j *Recorder) Rounds(messages []conversation.Message) []memory.RoundMessage {
	j.mu.Lock()
	defer j.mu.Unlock()
	var rounds []memory.RoundMessage
	for _, m := range messages {
		r := memory.RoundMessage{Message: m}
		if i := slices.IndexFunc(j.stored, func(e execution.Entry) bool { return hasContent(e, m) }); i >= 0 {
			r.Entry, r.Text, r.ToolCalls = j.stored[i].Number, "", nil
		}
		rounds = append(rounds, r)
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
func (j *Recorder) DropLate() {
	j.mu.Lock()
	defer j.mu.Unlock()
	late := slices.DeleteFunc(slices.Clone(j.pending[j.dueCount:]), func(e execution.Entry) bool { return e.Number > 0 })
	j.pending = append(j.pending[:j.dueCount:j.dueCount], late...)
}

func (j *Recorder) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// errRecorderClosed is returned to agent code that still runs after its step has ended.
var errRecorderClosed = failure.New(failure.AgentState, "agent.ExecuteStep", "the step has ended; nothing of it can be journaled any more")

// Sync implements execution.Journal.
func (j *Recorder) Sync(ctx context.Context) error {
	for {
		j.mu.Lock()
		j.dueCount = len(j.pending)
		j.startWriter()
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

// Close stops recording before the commit of the step, which carries all unwritten entries. A write in progress
// ends with the step's context; Wait waits for it.
func (j *Recorder) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// Wait blocks until no write is in progress.
func (j *Recorder) Wait() { j.writer.Wait() }
