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
	entryBytes = 256 // estimated size of an entry without its texts
)

// Recorder is the execution.Journal of one running step, over a Journal. It has one write under way at a time,
// and entries recorded meanwhile go into the next one. So a step whose tools only read waits for no write.
type Recorder struct {
	put   func([]execution.Entry) error               // retries until the step ends
	known map[int]map[execution.Phase]execution.Entry // entries of earlier attempts

	end    context.CancelCauseFunc
	writer sync.WaitGroup

	mu      sync.Mutex
	pending []execution.Entry
	due     int               // number of pending entries to write now; the others are late
	stored  []execution.Entry // that are durable, those of earlier attempts included
	writing bool
	closed  bool
	err     error
	changed chan struct{} // closed and replaced when a write ends
}

// New returns the journal of a step, and first reads the entries of earlier attempts. A rejected write ends the
// step: end is called with the reason. Writes are retried until ctx, the context of the step, ends. Close the
// recorder, end ctx, and then Wait.
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
			j.stored = append(j.stored, e)
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

// write stores due entries until none are left.
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
		if j.err = err; err == nil {
			j.stored = append(j.stored, batch...)
		}
		refused := err != nil && !j.closed
		j.notify()
		j.mu.Unlock()
		if refused {
			j.end(err)
		}
	}
}

// batch returns the entries of one write. Callers hold the lock.
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
	return len(e.Text) + conversation.Size(e.Reply) + len(e.Arguments) + len(e.StepInput) + entryBytes
}

// Unwritten returns the entries that may not be stored yet, for the commit of a recorded step. If they exceed
// the limit of a commit, it writes the journal first.
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

// DropLate drops the late entries at the end, except the input of the step. A failed step has not delivered its
// last reply, and the next attempt asks the model again.
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

// errRecorderClosed is returned to code of an agent that still runs after the end of its step.
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

// Close closes the journal before the commit of its step, which covers all unwritten entries. A write under way
// ends with the step's context; Wait waits for it.
func (j *Recorder) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// Wait returns when no write is under way.
func (j *Recorder) Wait() { j.writer.Wait() }
