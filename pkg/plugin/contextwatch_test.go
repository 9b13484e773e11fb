package plugin_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin"
)

// fillContext returns a reply that fills the context to the given percentage.
func fillContext(percent float64) scripted.Reply {
	return scripted.Reply{Deltas: []string{"ok"}, Usage: execution.Usage{InputTokens: int64(percent / 100 * llm.DefaultContextSize)}}
}

func runWatched(ctx context.Context, a *agent.Agent, session string) (warned []string, err error) {
	step := execution.Step{SessionID: session, TurnID: "turn of " + session, History: []conversation.Message{conversation.User("hi")}}
	_, err = a.Execute(ctx, agent.Invocation{Step: step}, func(e event.Event) error {
		if w, ok := e.Payload.(event.Warning); ok {
			warned = append(warned, w.Reason+" "+w.Message)
		}
		return nil
	})
	return warned, err
}

func watchedAgent(t *testing.T, c plugin.ContextWatch, replies ...scripted.Reply) *agent.Agent {
	t.Helper()
	watch, err := plugin.NewContextWatch(c)
	require.NoError(t, err)
	a, err := agent.New(agent.Config{Name: "helper", Model: scripted.New(replies...), Plugins: []hook.Plugin{watch}})
	require.NoError(t, err)
	return a
}

// Req: CO-7, CO-21
func TestContextWatch_WarnsOnceForEachCrossing(t *testing.T) {
	for name, tc := range map[string]struct {
		config plugin.ContextWatch
		fills  []float64
		want   []string // thresholds (empty means no warning)
	}{
		"each once":         {fills: []float64{10, 50, 60, 76, 80, 91, 99}, want: []string{"", "50", "", "75", "", "90", ""}},
		"the highest":       {fills: []float64{95, 95}, want: []string{"90", ""}},
		"again after a gap": {fills: []float64{60, 40, 60}, want: []string{"50", "", "50"}},
		"own thresholds":    {plugin.ContextWatch{At: []float64{80, 20.5}}, []float64{20, 50, 90}, []string{"", "20.5", "80"}},
	} {
		t.Run(name, func(t *testing.T) {
			var replies []scripted.Reply
			for _, fill := range tc.fills {
				replies = append(replies, fillContext(fill))
			}
			a := watchedAgent(t, tc.config, replies...)
			for i, fill := range tc.fills {
				warned, err := runWatched(t.Context(), a, "s")
				require.NoError(t, err)
				var want []string
				if tc.want[i] != "" {
					want = []string{fmt.Sprintf("CONTEXT_FILLING the context of the model is %.0f %% full (the threshold is %s %%)", fill, tc.want[i])}
				}
				require.Equal(t, want, warned)
			}
		})
	}
}

func TestContextWatch_KeepsSessionsSeparate(t *testing.T) {
	a := watchedAgent(t, plugin.ContextWatch{}, fillContext(60), fillContext(60), fillContext(60))
	for session, want := range map[string]int{"a": 1, "b": 1} {
		warned, err := runWatched(t.Context(), a, session)
		require.NoError(t, err)
		require.Len(t, warned, want)
	}
	warned, err := runWatched(t.Context(), a, "a")
	require.NoError(t, err)
	require.Empty(t, warned)
}

func TestContextWatch_RejectsInvalidSettings(t *testing.T) {
	for _, at := range []float64{0, -1, 100.5} {
		_, err := plugin.NewContextWatch(plugin.ContextWatch{At: []float64{50, at}})
		require.True(t, failure.Is(err, failure.AgentValidation))
		require.ErrorContains(t, err, "At[1]")
	}
}

// This agent warns when the context of its model is half full.
func ExampleNewContextWatch() {
	watch, err := plugin.NewContextWatch(plugin.ContextWatch{At: []float64{50}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	helper, err := agent.New(agent.Config{Name: "helper", Model: scripted.New(fillContext(62)), Plugins: []hook.Plugin{watch}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	warned, err := runWatched(context.Background(), helper, "session")
	fmt.Fprintln(os.Stdout, warned, err)
	// Output: [CONTEXT_FILLING the context of the model is 62 % full (the threshold is 50 %)] <nil>
}
