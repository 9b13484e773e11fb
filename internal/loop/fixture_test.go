package loop_test

import (
	"context"
	"strings"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// runOutcome holds the results of a run, which runToEnd collects from the run's events.
type runOutcome struct {
	event.Answer
	Messages []conversation.Message
	Calls    []event.ToolFinished
	Usage    execution.Usage
}

// runToEnd reads the events of a run until it ends. It passes each payload that is not internal to emit. An error
// of emit ends the run.
func runToEnd(ctx context.Context, l loop.Loop, in loop.Input, emit func(event.Payload) error) (out runOutcome, err error) {
	for e, err := range l.Run(ctx, in) {
		if err != nil {
			return out, err
		}
		switch p := e.Payload.(type) {
		case event.Answer:
			out.Answer = p
		case event.MessageAppended:
			out.Messages = append(out.Messages, p.Message)
		case event.ToolFinished:
			out.Calls = append(out.Calls, p)
		case event.ModelCall:
			out.Usage = out.Usage.Add(p.Usage)
		}
		if _, isLast := e.Payload.(event.Answer); isLast || strings.HasPrefix(e.Kind(), event.InternalPrefix) {
			continue
		}
		if err := emit(e.Payload); err != nil {
			return out, err
		}
	}
	return out, nil
}

func ignoreEvents(event.Payload) error { return nil }

// eventRecorder keeps the emitted events of a run.
type eventRecorder struct{ events []event.Payload }

func (r *eventRecorder) emit(e event.Payload) error {
	r.events = append(r.events, e)
	return nil
}

// newInput returns the input of a turn whose user message is text.
func newInput(text string, handlers ...hook.Handler) loop.Input {
	set, err := hook.NewSet(nil, handlers)
	if err != nil {
		panic(err)
	}
	return loop.Input{System: "be brief", Control: hook.New(hook.Start{
		Info: hook.Info{Agent: "test", Prompt: text, Turn: 1}, Handlers: set, Messages: []conversation.Message{conversation.User(text)},
	})}
}
