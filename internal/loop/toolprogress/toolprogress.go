// Package toolprogress emits the reports of running tools. Tools run on their own goroutines, but only the
// goroutine of the turn may emit events.
package toolprogress

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/troupe-dev/troupe/internal/loop/guard"
	"github.com/troupe-dev/troupe/internal/turnstate"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// maxReports limits the number of tool reports that wait to be emitted. Further reports are dropped.
const maxReports = 16

// Task runs one tool call.
type Task struct {
	CallID string
	Tool   string
	Run    func(context.Context)
}

// reportQueue passes events from running tools to the goroutine of the turn.
type reportQueue struct {
	events chan event.Payload
	done   chan struct{} // closed when the last task has ended
}

// RunTasks runs tasks concurrently and meanwhile emits the reports of their tools. It returns when all tasks have
// ended. If emitting fails, it cancels the tasks, and the next event that is emitted returns the error.
func RunTasks(ctx context.Context, events *turnstate.Events, tasks ...Task) {
	if len(tasks) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait() // waits even if the consumer of events panics
	defer cancel()
	r := &reportQueue{events: make(chan event.Payload, maxReports), done: make(chan struct{})}
	var left atomic.Int32
	left.Store(int32(len(tasks)))
	for _, t := range tasks {
		running.Go(func() {
			defer func() {
				if left.Add(-1) == 0 {
					close(r.done)
				}
			}()
			t.Run(context.WithValue(ctx, reporterKey{}, &reporter{r, t}))
		})
	}
	for {
		select {
		case p := <-r.events:
			if events.Emit(p) != nil {
				cancel()
			}
		case <-events.Added():
			if events.EmitAdded() != nil {
				cancel()
			}
		case <-r.done:
			for len(r.events) > 0 && events.Err() == nil {
				_ = events.Emit(<-r.events) // the next event returns the error again
			}
			return
		}
	}
}

// reporterKey is the context key for the *reporter of a tool call.
type reporterKey struct{}

// reporter emits events on behalf of one task.
type reporter struct {
	*reportQueue
	task Task
}

// ContextWithReporter returns a context in which a tool can report its progress. Outside of tasks it returns ctx.
func ContextWithReporter(ctx context.Context) context.Context {
	r, ok := ctx.Value(reporterKey{}).(*reporter)
	if !ok {
		return ctx
	}
	return tool.ContextWithReporter(ctx, func(p tool.Report) {
		progress := event.ToolProgress{
			CallID: r.task.CallID, Tool: r.task.Tool, Message: conversation.Excerpt(p.Message, event.MaxSummaryChars), Fraction: p.Fraction,
		}
		select {
		case r.events <- progress:
		default: // the queue is full, so the report is dropped
		}
	})
}

// EmitSubtask emits, from inside a tool call, that a child turn has started for the call. It waits until the event
// is received or the call has ended. Outside of tool calls it does nothing.
func EmitSubtask(ctx context.Context, s event.SubtaskStarted) {
	if r, _ := ctx.Value(reporterKey{}).(*reporter); r != nil {
		s.CallID = r.task.CallID
		r.emit(ctx, s)
	}
}

// EmitWarning emits a warning of the guard from inside a tool call, in the same way as EmitSubtask. It ignores all
// other warnings.
func EmitWarning(ctx context.Context, w event.Warning) {
	if r, _ := ctx.Value(reporterKey{}).(*reporter); r != nil && w.Reason == guard.ReasonUntrustedInput {
		r.emit(ctx, w)
	}
}

func (r *reporter) emit(ctx context.Context, p event.Payload) {
	select {
	case r.events <- p:
	case <-r.done:
	case <-ctx.Done():
	}
}
