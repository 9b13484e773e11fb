package loop_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// observingTools returns three tools that call look. One of them succeeds, one fails and one panics.
func observingTools(t *testing.T, look func(context.Context)) *tool.Set {
	t.Helper()
	var all []tool.Tool
	for name, end := range map[string]func() error{
		"spy": func() error { return nil }, "fail": func() error { return errors.New("caught") }, "panic": func() error { panic("caught") },
	} {
		one, err := tool.Func(name, "Looks around.", func(ctx context.Context, _ wordArgs) (string, error) {
			look(ctx)
			return "seen", end()
		})
		require.NoError(t, err)
		all = append(all, one)
	}
	set, err := tool.NewSet(all...)
	require.NoError(t, err)
	return set
}

// Req: CO-51, CO-52
func TestInTool_DescribesTheTurnInsideATool(t *testing.T) {
	var seen []hook.Running
	set := observingTools(t, func(ctx context.Context) { seen = append(seen, hook.InTool(ctx)) })
	outside := func(ctx context.Context) { require.Equal(t, hook.Running{}, hook.InTool(ctx)) }
	call := func(ctx context.Context, _ *hook.Call) error { outside(ctx); return nil }
	in := newInput("find it", hook.BeforeEachTool(call), hook.AfterEachTool(call), hook.OnError(call))
	model := scripted.New(toolCallsReply("spy", "fail"), scripted.Call(toolCall("3", "spy", "x")), scripted.Say("done"))
	var got eventRecorder
	_, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: set}, in, got.emit)
	require.NoError(t, err)
	outside(t.Context())
	require.Equal(t, "no tool is running", hook.Running{}.String())
	require.Nil(t, hook.Running{}.State())
	require.Nil(t, hook.Running{}.Memory())

	require.Len(t, seen, 3)
	for i, r := range seen {
		require.Equal(t, fmt.Sprint(i+1), r.CallID)
		require.Equal(t, "test", r.Info.Agent)
		require.Equal(t, "find it", r.Info.Prompt)
		require.Same(t, in.Control.Turn().State(), r.State())
		require.NotNil(t, r.Memory())
	}
	last := seen[2]
	require.Equal(t, 2, last.Iteration)
	require.Equal(t, []string{"spy", "fail"}, last.Previous)
	require.Len(t, last.Messages, 5)
	require.Equal(t, conversation.RoleAssistant, last.Messages[4].Role)
	require.Equal(t, `agent test, turn 1, iteration 2, task "find it", 5 messages, tools before: spy, fail`, last.String())

	// The model cannot supply any of these values as an argument.
	spec, _ := set.Find("spy")
	require.NotContains(t, string(spec.Spec().Schema), "agent")
	for _, e := range got.events {
		if f, ok := e.(event.ToolFinished); ok {
			require.NotContains(t, f.Arguments, "test")
		}
	}
}

// Req: CO-51
func TestInTool_IsZeroAfterTheTool(t *testing.T) {
	for _, name := range []string{"spy", "fail", "panic"} {
		t.Run(name, func(t *testing.T) {
			ended, later := make(chan struct{}), make(chan hook.Running)
			set := observingTools(t, func(ctx context.Context) {
				require.NotZero(t, hook.InTool(ctx).CallID)
				go func() { // goroutine that the tool does not wait for
					<-ended
					later <- hook.InTool(ctx)
				}()
			})
			in := newInput("go", hook.AfterEachTool(func(context.Context, *hook.Call) error {
				close(ended)
				require.Equal(t, hook.Running{}, <-later)
				return nil
			}))
			_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(toolCallsReply(name), scripted.Say("done")), Tools: set}, in, ignoreEvents)
			require.NoError(t, err)
		})
	}
}

// Req: CO-51
func TestInTool_SeparatesTurnsAndCalls(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	set := observingTools(t, func(ctx context.Context) {
		r := hook.InTool(ctx)
		r.State().Keys()
		_ = r.Memory().Set("seen", r.CallID)
		mu.Lock()
		defer mu.Unlock()
		seen[r.Info.TurnID+" "+r.CallID+" "+r.Messages[0].Text] = true
	})
	var turns sync.WaitGroup
	failed := make([]error, 20)
	for n := range 20 {
		turns.Go(func() {
			id := fmt.Sprint("turn ", n)
			in := loop.Input{Control: hook.New(hook.Start{Info: hook.Info{TurnID: id}, Messages: []conversation.Message{conversation.User(id)}})}
			l := loop.Loop{Model: scripted.New(toolCallsReply("spy", "spy"), scripted.Say("done")), Tools: set, Parallel: true}
			_, err := runToEnd(t.Context(), l, in, ignoreEvents)
			failed[n] = err
		})
	}
	turns.Wait()
	require.NoError(t, errors.Join(failed...))
	require.Len(t, seen, 40)
	for n := range 20 {
		require.True(t, seen[fmt.Sprintf("turn %d 1 turn %d", n, n)] && seen[fmt.Sprintf("turn %d 2 turn %d", n, n)], "%v", seen)
	}
}
