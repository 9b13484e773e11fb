package loop

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// maxUnheard is how many reports of tools may wait to be told; more are dropped.
const maxUnheard = 16

// attendance hears what tools tell while they run: events are told by the goroutine of the
// turn alone.
type attendance struct {
	said chan event.Payload
	over chan struct{} // closed when the last of the tools has ended
}

// attend runs tools beside each other, and tells meanwhile what they say on the way. It returns
// when all have ended; nil is a call that does not run. When nobody listens any more they are
// cancelled; the next event says so.
func (r *run) attend(ctx context.Context, all ...*work) {
	all = slices.DeleteFunc(slices.Clone(all), func(w *work) bool { return w == nil })
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait() // also when who listens panics
	defer cancel()
	a := &attendance{said: make(chan event.Payload, maxUnheard), over: make(chan struct{})}
	var left atomic.Int32
	left.Store(int32(len(all)))
	for _, w := range all {
		running.Go(func() {
			defer func() {
				if left.Add(-1) == 0 {
					close(a.over)
				}
			}()
			w.run(context.WithValue(ctx, attendedKey{}, &attended{a, w}))
		})
	}
	for {
		select {
		case p := <-a.said:
			if r.Events.Emit(p) != nil {
				cancel()
			}
		case <-a.over:
			for len(a.said) > 0 && r.Events.Err() == nil {
				_ = r.Events.Emit(<-a.said) // whose error the next event has again
			}
			return
		}
	}
}

// attendedKey finds the *attended call that a tool runs in.
type attendedKey struct{}

type attended struct {
	*attendance
	w *work
}

// reporting is the context in which the progress of a call is told.
func (a *attended) reporting(ctx context.Context) context.Context {
	return tool.Reporting(ctx, func(p tool.Report) {
		told := event.ToolProgress{
			CallID: a.w.asked.ID, Tool: a.w.asked.Name, Message: conversation.Brief(p.Message, event.MaxSummary), Fraction: p.Fraction,
		}
		select {
		case a.said <- told:
		default: // who listens is slower
		}
	})
}

// Began tells, from inside a tool call, that a turn of its own began for it. It waits until that
// is heard, or the call is over; outside of calls it does nothing.
func Began(ctx context.Context, s event.SubtaskStarted) {
	if a, _ := ctx.Value(attendedKey{}).(*attended); a != nil {
		s.CallID = a.w.asked.ID
		a.tell(ctx, s)
	}
}

// Warned tells as Began does what the guard did inside of a tool call.
func Warned(ctx context.Context, w event.Warning) {
	if a, _ := ctx.Value(attendedKey{}).(*attended); a != nil && w.Reason == ReasonGuarded {
		a.tell(ctx, w)
	}
}

func (a *attended) tell(ctx context.Context, p event.Payload) {
	select {
	case a.said <- p:
	case <-a.over:
	case <-ctx.Done():
	}
}
