package flow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// above is an agent that asks the one below it, and does something itself behind that.
func (w *world) above(t *testing.T, name string, below *agent.Agent) *agent.Agent {
	t.Helper()
	return build(t, agent.Config{
		Name: name, Tools: []tool.Tool{toolOf(t, below), w.act(t, execution.Read)},
		Model: brain{w, []conversation.ToolCall{call(below.Name(), "request", "help"), call("read", "what", name)}},
	})
}

// stopped is an agent whose call waits deep inside of it, and the turn in which it is stopped.
func (w *world) stopped(t *testing.T, boss *agent.Agent, j *journal) agent.Invocation {
	t.Helper()
	inv := w.invocation(j)
	_, done, err := observe(t.Context(), boss, inv)
	require.NoError(t, err)
	require.Len(t, done.Result.Pending, 1)
	return next(inv, execution.Answer{ID: done.Result.Pending[0].ID, Verdict: execution.Stop, Text: "no"})
}

// A person who stops a call stops the turn, however deep the agent is whose call it is: no tool
// behind it runs. Wherever the worker dies, its successor stops too.
//
// Req: AD-29, AD-32, CO-63
func TestAsTool_AStoppedCallStopsTheWholeTurn(t *testing.T) {
	for name, below := range map[string]func(*world) *agent.Agent{
		"below": func(w *world) *agent.Agent { return w.once(t, "aide") },
		"in a flow": func(w *world) *agent.Agent {
			return flowOf(t)(flow.Sequence(agent.Config{Name: "flow"}, w.once(t, "aide")))
		},
		"in branches": func(w *world) *agent.Agent {
			return flowOf(t)(flow.Parallel(agent.Config{Name: "flow"}, w.once(t, "aide")))
		},
		"two below": func(w *world) *agent.Agent { return w.above(t, "middle", w.once(t, "aide")) },
	} {
		t.Run(name, func(t *testing.T) {
			after := 0
			for died := true; died; after++ {
				w := &world{did: map[string]int{}}
				boss, j := w.above(t, "boss", below(w)), &journal{entries: map[string]execution.Entry{}}
				inv := w.stopped(t, boss, j)
				left := after
				died = false
				for _, err := range boss.Run(t.Context(), inv) {
					require.NoError(t, err)
					if died = left == 0; died {
						break
					}
					left--
				}
				inv.Step.Attempt++
				_, done, err := observe(t.Context(), boss, inv)
				require.NoError(t, err, "lost behind %d events", after)
				require.Equal(t, event.Stopped, done.Reason, "lost behind %d events", after)
				require.True(t, done.Result.Stopped)
				require.Contains(t, done.Result.Text, "The turn was stopped: the user does not allow at_most_once: no")
				require.Empty(t, w.did, "lost behind %d events", after)
				require.Empty(t, j.clashes)
			}
			require.Greater(t, after, 3, "the run was long enough")
		})
	}
}

// A handler stops the turn of its own agent, and its last words are a result for the one above.
//
// Req: AD-29, CO-63
func TestAsTool_AHandlerStopsOnlyItsOwnAgent(t *testing.T) {
	w := &world{did: map[string]int{}}
	aide := w.once(t, "aide", hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error { c.Stop("enough."); return nil }))
	_, done, err := observe(t.Context(), w.above(t, "boss", aide), w.invocation(&journal{entries: map[string]execution.Entry{}}))
	require.NoError(t, err)
	require.Equal(t, event.Natural, done.Reason)
	require.Equal(t, "read [The turn was stopped: enough.|did boss]", done.Result.Text)
	require.Len(t, w.did, 1)
}
