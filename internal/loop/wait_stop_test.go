package loop_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/loop/nested"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A stop takes precedence over waiting calls: each call gets a result, in order.
// Req: CO-33, CO-63
func TestLoop_AbandonsWaitingCallsOnAStop(t *testing.T) {
	o := newWaitScenario(t, toolCallsReply("look", "send", "look", "screen"))
	o.handlers = append(o.handlers, hook.AfterEachTool(func(_ context.Context, c *hook.Call) error { c.Stop("enough"); return nil }))
	in := newInput("go", o.handlers...)
	in.Journal = o.journal
	out, err := runToEnd(t.Context(), loop.Loop{Model: o.model, Tools: o.tools, Parallel: true}, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, event.Stopped, out.Reason)
	require.Empty(t, out.Pending)
	require.NoError(t, conversation.CheckRounds(in.Control.Turn().Messages()))
	require.ElementsMatch(t, []string{"look 1", "look 3"}, o.toolRuns)
	require.Equal(t, []string{"did 1", "Not run: the turn was stopped before it.", "did 3", "Not run: the turn was stopped before it."}, resultTexts(out))

	// The call of an agent used as a tool has already started if an inner call waits, so its end is emitted.
	o = newWaitScenario(t)
	set, err := tool.NewSet(o.tools.Tools()[0], o.tools.Tools()[1], waitingAgentTool{tool.WithEffect(execution.Read, newWatchedTools(t, nil)[0]), 2})
	require.NoError(t, err)
	in = newInput("go", hook.AfterEachTool(func(_ context.Context, c *hook.Call) error { c.Stop("enough"); return nil }))
	in.Journal = o.journal
	out, err = runToEnd(t.Context(), loop.Loop{Model: scripted.New(toolCallsReply("look", "echo")), Tools: set, Parallel: true}, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, event.Stopped, out.Reason)
	require.Equal(t, []string{"did 1", "Interrupted: the turn was stopped while it ran."}, resultTexts(out))
	require.Equal(t, event.ToolInterrupted, out.Calls[1].Status)
}

// waitingAgentTool is an agent used as a tool, with many inner calls that wait.
type waitingAgentTool struct {
	tool.Tool
	innerCalls int
}

func (w waitingAgentTool) CallIn(_ context.Context, _ json.RawMessage, n *nested.Call) (tool.Result, error) {
	n.Pending = make([]execution.Pending, w.innerCalls)
	return tool.Result{}, nil
}

func (waitingAgentTool) Skip(context.Context, *nested.Call) {}

func TestLoop_LimitsTheWaitingCalls(t *testing.T) {
	for calling, wrong := range map[int]bool{execution.MaxPending: false, execution.MaxPending + 1: true} {
		o := newWaitScenario(t, toolCallsReply("echo"))
		var err error
		o.tools, err = tool.NewSet(waitingAgentTool{tool.WithEffect(execution.Read, newWatchedTools(t, nil)[0]), calling})
		require.NoError(t, err)
		o.handlers = nil
		_, err = o.tryTurn()
		require.Equal(t, wrong, failure.Is(err, failure.ResourceQuota), "%v", err)
	}
}
