package loop_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// With Parallel, the tools of one reply run concurrently. A call with an invalid tool name gets an error result.
// Req: LP-34
func TestLoop_RunsToolsConcurrentlyAndRejectsBadNames(t *testing.T) {
	met := make(chan struct{})
	var both []tool.Tool
	for _, name := range []string{"left", "right"} {
		one, err := tool.Func(name, "Waits for the other.", func(ctx context.Context, _ wordArgs) (string, error) {
			select { // the first one waits for the other
			case met <- struct{}{}:
			case <-met:
			case <-ctx.Done():
				return "", ctx.Err()
			}
			return "met", nil
		})
		require.NoError(t, err)
		both = append(both, one)
	}
	set, err := tool.NewSet(both...)
	require.NoError(t, err)
	model := scripted.New(scripted.Call(toolCall("1", "left", "a"), toolCall("2", "bad name!", "b"), toolCall("3", "right", "c")), scripted.Say("done"))
	out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: set, Parallel: true}, newInput("go"), ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, "done", out.Text)
	var statuses []event.ToolStatus
	for _, c := range out.Calls {
		statuses = append(statuses, c.Status)
	}
	require.Equal(t, []event.ToolStatus{event.ToolSuccess, event.ToolNotFound, event.ToolSuccess}, statuses, "in the order of the calls")
}

// Handlers can read the turn, its memory and its trace.
// Req: LP-3
func TestLoop_GivesHandlersAccessToTheTurn(t *testing.T) {
	var seen hook.Info
	set, err := hook.NewSet(nil, []hook.Handler{hook.AfterUserInput(func(ctx context.Context, turn *hook.Turn) error {
		seen = turn.Info()
		content, _, err := turn.Memory().LoadArtifact(ctx, "plan.md", 0)
		require.NoError(t, err)
		require.Equal(t, "the plan", string(content))
		label, _ := turn.Trace().Get("label")
		require.Equal(t, "blue", label)
		return nil
	})})
	require.NoError(t, err)
	var calls []string
	model := scripted.New(scripted.Call(toolCall("1", "echo", "a")), scripted.Say("done"))
	in := loop.Input{System: "be brief", Control: hook.New(hook.Start{
		Info: hook.Info{Agent: "test", Session: "s1", Turn: 1}, Handlers: set,
		Memory: hook.NewMemory(fakeArtifactStore{},
			"test"), Trace: ownership.NewTraceView(map[string]string{"label": "blue"}), Messages: []conversation.Message{conversation.User("go")},
	})}
	out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: newTools(t, &calls), MaxIterations: 1}, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, event.MaxIterations, out.Reason)
	require.Equal(t, []string{"a"}, calls)
	require.Equal(t, "be brief", model.Requests()[0].System)
	require.Equal(t, "s1", seen.Session)
	require.Equal(t, 1, seen.Turn)
}

// fakeArtifactStore is a hook store that contains one artifact.
type fakeArtifactStore struct{ hook.Store }

func (fakeArtifactStore) LoadArtifact(context.Context, string, int) ([]byte, string, error) {
	return []byte("the plan"), "text/markdown", nil
}
