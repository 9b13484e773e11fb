// Package toolprogress emits what tools report while they run. Only the goroutine of the turn may emit events, and
// tools run on goroutines of their own.
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

// maxReports limits the tool reports that wait to be emitted; more are dropped.
const maxReports = 16

// Task runs one tool call.
type Task struct {
	CallID string
	Tool   string
	Run    func(context.Context)
}

// reports carries events from running tools to the goroutine of the turn.
type reports struct {
	events chan event.Payload
	ended  chan struct{} // closed when the last task has ended
}

// Watch runs tasks concurrently, and emits meanwhile what their tools report. It returns when all have ended. When
// emitting fails it cancels them; the next event returns the error.
func Watch(ctx context.Context, events *turnstate.Events, tasks ...Task) {
	if len(tasks) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait() // also when the consumer of events panics
	defer cancel()
	r := &reports{events: make(chan event.Payload, maxReports), ended: make(chan struct{})}
	var left atomic.Int32
	left.Store(int32(len(tasks)))
	for _, t := range tasks {
		running.Go(func() {
			defer func() {
				if left.Add(-1) == 0 {
					close(r.ended)
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
		case <-r.ended:
			for len(r.events) > 0 && events.Err() == nil {
				_ = events.Emit(<-r.events) // the next event returns the error again
			}
			return
		}
	}
}

// reporterKey finds the *reporter of a tool call.
type reporterKey struct{}

// reporter emits events on behalf of one task.
type reporter struct {
	*reports
	task Task
}

// WithReports returns a context in which a tool reports its progress. Outside of tasks it returns ctx.
func WithReports(ctx context.Context) context.Context {
	r, ok := ctx.Value(reporterKey{}).(*reporter)
	if !ok {
		return ctx
	}
	return tool.Reporting(ctx, func(p tool.Report) {
		progress := event.ToolProgress{
			CallID: r.task.CallID, Tool: r.task.Tool, Message: conversation.Brief(p.Message, event.MaxSummary), Fraction: p.Fraction,
		}
		select {
		case r.events <- progress:
		default: // the consumer is slower
		}
	})
}

// EmitSubtask emits, from inside a tool call, that a separate turn began for the call. It waits until the event
// is received or the call has ended. Outside of calls it does nothing.
func EmitSubtask(ctx context.Context, s event.SubtaskStarted) {
	if r, _ := ctx.Value(reporterKey{}).(*reporter); r != nil {
		s.CallID = r.task.CallID
		r.emit(ctx, s)
	}
}

// EmitWarning emits a warning of the guard from inside a tool call, as EmitSubtask does. It ignores other
// warnings.
func EmitWarning(ctx context.Context, w event.Warning) {
	if r, _ := ctx.Value(reporterKey{}).(*reporter); r != nil && w.Reason == guard.ReasonUntrustedInput {
		r.emit(ctx, w)
	}
}

func (r *reporter) emit(ctx context.Context, p event.Payload) {
	select {
	case r.events <- p:
	case <-r.ended:
	case <-ctx.Done():
	}
}
