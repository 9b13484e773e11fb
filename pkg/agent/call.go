package agent

import (
	"context"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/agent/internal/scope"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// CallTool runs one of the agent's tools outside of a turn, together with the handlers of a tool round (CO-38).
// Use it in tests, and in programs that choose the tool themselves. Arguments are a JSON object. The result
// describes how the tool ended. An error comes from a handler or from ctx.
func (a *Agent) CallTool(ctx context.Context, name, arguments string) (event.ToolFinished, error) {
	ctx = scope.WithRun(ctx, nil) // no journal of a turn records the call
	control := hook.New(hook.Start{Info: Invocation{}.info(a), Handlers: a.handlers, State: a.state})
	var done event.ToolFinished
	for e, err := range a.newLoop(Invocation{}).RunTools(ctx, loop.Input{Control: control}, conversation.ToolCall{Name: name, Arguments: arguments}) {
		if err != nil {
			return done, err
		}
		if p, ok := e.Payload.(event.ToolFinished); ok {
			done = p
		}
	}
	if done.Tool == "" {
		return done, failure.Newf(failure.UserCancelled, "agent.CallTool", "tool %s did not run: a handler stopped it", name)
	}
	return done, nil
}
