package turnstate

import (
	"github.com/troupe-dev/troupe/internal/customevent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// interceptor runs a function for each event before it is emitted. The function may replace the texts of the event. Events
// that the function emits follow the event, and do not reach the function.
type interceptor struct {
	run       func(event.Event) (event.Payload, error) // (nil runs nothing)
	isRunning bool
	held      []event.Event // emitted by run for the current event
	err       error         // of run
}

// SetInterceptor sets the function that runs for each event, until EndInterception. Its error ends the events, as an error
// of the consumer does.
func (e *Events) SetInterceptor(run func(event.Event) (event.Payload, error)) {
	e.interceptor = interceptor{run: run}
}

// EndInterception removes the interceptor. If its error has ended the events, they go on, so that the turn has a last one.
func (e *Events) EndInterception() {
	if e.err == e.interceptor.err { //nolint:errorlint // the same error, not one like it
		e.err = nil
	}
	e.interceptor = interceptor{}
}

// intercept runs the function for an event and replaces its texts. It returns the events that the function emitted.
func (i *interceptor) intercept(ev *event.Event) (emitted []event.Event, err error) {
	switch ev.Payload.(type) {
	case event.TurnResult, event.MessageAppended, event.Error:
		return nil, nil
	}
	if i.run == nil {
		return nil, nil
	}
	i.isRunning = true
	replacement, err := i.run(*ev)
	i.isRunning, i.err = false, err
	emitted, i.held = i.held, nil
	if replacement != nil {
		ev.Payload = replacement
	}
	return emitted, err
}

// ReplaceTexts returns an event whose texts come from another payload of the same kind. What else an event says is a fact and
// stays as it is. It fails with agent_logic for another kind, for a kind without such texts, and for data of a custom event
// that is invalid or longer than before, because that was counted already.
func ReplaceTexts(of, by event.Payload) (event.Payload, error) {
	if of.Kind() != by.Kind() {
		return nil, failure.Newf(failure.AgentLogic, "hook.OnEvent", "an event of kind %s cannot be replaced by one of kind %s", of.Kind(), by.Kind())
	}
	switch e := of.(type) {
	case event.TextDelta:
		return by, nil
	case event.ToolStarted:
		e.Arguments = by.(event.ToolStarted).Arguments
		return e, nil
	case event.ToolFinished:
		made := by.(event.ToolFinished)
		e.Arguments, e.Result, e.Summary = made.Arguments, made.Result, made.Summary
		return e, nil
	case event.ToolProgress:
		e.Message = by.(event.ToolProgress).Message
		return e, nil
	case event.Message:
		e.Text = by.(event.Message).Text
		return e, nil
	case event.Answer:
		e.Text = by.(event.Answer).Text
		return e, nil
	case event.Thinking:
		e.Text = by.(event.Thinking).Text
		return e, nil
	case event.Warning:
		e.Message = by.(event.Warning).Message
		return e, nil
	case event.Custom:
		return replaceData(e, by.(event.Custom))
	default:
		return nil, failure.Newf(failure.AgentLogic, "hook.OnEvent", "an event of kind %s has no text that a handler may replace", of.Kind())
	}
}

func replaceData(of, by event.Custom) (event.Payload, error) {
	if len(by.Data) > len(of.Data) {
		return nil, failure.Newf(failure.AgentLogic, "hook.OnEvent", "event %q: its data has %d bytes and may not get more", of.Name, len(of.Data))
	}
	of.Data = by.Data
	return of, customevent.Check(of)
}
