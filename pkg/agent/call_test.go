package agent_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Req: CO-38
func TestAgent_CallsAToolOutsideOfATurn(t *testing.T) {
	var fired []string
	note := func(what string) func(context.Context, *hook.Call) error {
		return func(_ context.Context, c *hook.Call) error {
			fired = append(fired, what+" "+string(c.Status))
			return nil
		}
	}
	a := build(t, agent.Config{Model: scripted.New(), Tools: []tool.Tool{lookup(t)}, Handlers: []hook.Handler{
		hook.OnError(note("error")), hook.AfterEachTool(note("each")),
		hook.AfterTools(func(context.Context, *hook.Round) error { fired = append(fired, "tools"); return nil }),
	}})
	for query, want := range map[string]struct {
		status event.ToolStatus
		fired  []string
	}{
		"a":     {event.ToolSuccess, []string{"each success", "tools"}},
		"error": {event.ToolError, []string{"error error", "each error", "tools"}},
	} {
		fired = nil
		done, err := a.CallTool(t.Context(), "lookup", `{"query": "`+query+`"}`)
		require.NoError(t, err)
		require.Equal(t, want.status, done.Status)
		require.Equal(t, want.fired, fired)
	}
	done, err := a.CallTool(t.Context(), "nothing", "{}")
	require.NoError(t, err)
	require.Equal(t, event.ToolNotFound, done.Status)

	refuses := build(t, agent.Config{Model: scripted.New(), Tools: []tool.Tool{lookup(t)}, Handlers: []hook.Handler{
		hook.BeforeTools(func(context.Context, *hook.Round) error {
			return failure.New(failure.PolicySecurity, "test", "not today")
		}),
	}})
	_, err = refuses.CallTool(t.Context(), "lookup", `{"query": "a"}`)
	require.True(t, failure.Is(err, failure.PolicySecurity), "%v", err)
}

// A handler of the round may ask the model, as it may in a turn.
//
// Req: CO-38
func TestAgent_HandlersOfACallOutsideOfATurnAskTheModel(t *testing.T) {
	var thought string
	a := build(t, agent.Config{Model: scripted.New(scripted.Say("Enough.")), Tools: []tool.Tool{lookup(t)}, Handlers: []hook.Handler{
		hook.AfterTools(func(ctx context.Context, round *hook.Round) error {
			said, err := round.Ask(ctx, llm.Request{Messages: round.Messages()})
			thought = said.Text
			return err
		}),
	}})
	_, err := a.CallTool(t.Context(), "lookup", `{"query": "a"}`)
	require.NoError(t, err)
	require.Equal(t, "Enough.", thought)
}
