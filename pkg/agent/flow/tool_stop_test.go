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

// parentAgent returns an agent that calls child as a tool and then calls a tool of its own.
func (c *callCounts) parentAgent(t *testing.T, name string, child *agent.Agent) *agent.Agent {
	t.Helper()
	return build(t, agent.Config{
		Name: name, Tools: []tool.Tool{mustBuildTool(t, child), c.recordingTool(t, execution.Read)},
		Model: callingModel{c, []conversation.ToolCall{newToolCall(child.Name(), "request", "help"), newToolCall("read", "what", name)}},
	})
}

// stoppedTurn runs an agent until a nested call waits. It returns the turn in which a person stops that call.
func (c *callCounts) stoppedTurn(t *testing.T, boss *agent.Agent, j *journal) agent.Invocation {
	t.Helper()
	inv := c.invocation(j)
	_, done, err := runAndDescribe(t.Context(), boss, inv)
	require.NoError(t, err)
	require.Len(t, done.Result.Pending, 1)
	return continuingTurn(inv, execution.Answer{ID: done.Result.Pending[0].ID, Verdict: execution.Stop, Text: "no"})
}

// A person who stops a call stops the whole turn, however deep the agent with the call is nested. No later tool
// runs. Wherever the worker is lost, the next attempt stops too.
// Req: AD-29, AD-32, CO-63
func TestAsTool_StoppedCallStopsTheWholeTurn(t *testing.T) {
	for name, child := range map[string]func(*callCounts) *agent.Agent{
		"a child": func(w *callCounts) *agent.Agent { return w.atMostOnceAgent(t, "aide") },
		"in a flow": func(w *callCounts) *agent.Agent {
			return mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "flow"}, w.atMostOnceAgent(t, "aide")))
		},
		"in branches": func(w *callCounts) *agent.Agent {
			return mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "flow"}, w.atMostOnceAgent(t, "aide")))
		},
		"a grandchild": func(w *callCounts) *agent.Agent { return w.parentAgent(t, "middle", w.atMostOnceAgent(t, "aide")) },
	} {
		t.Run(name, func(t *testing.T) {
			after := 0
			for lost := true; lost; after++ {
				w := &callCounts{toolCalls: map[string]int{}}
				boss, j := w.parentAgent(t, "boss", child(w)), &journal{entries: map[string]execution.Entry{}}
				inv := w.stoppedTurn(t, boss, j)
				left := after
				lost = false
				for _, err := range boss.Run(t.Context(), inv) {
					require.NoError(t, err)
					if lost = left == 0; lost {
						break
					}
					left--
				}
				inv.Step.Attempt++
				_, done, err := runAndDescribe(t.Context(), boss, inv)
				require.NoError(t, err, "lost after %d events", after)
				require.Equal(t, event.Stopped, done.Reason, "lost after %d events", after)
				require.True(t, done.Result.Stopped)
				require.Contains(t, done.Result.Text, "The turn was stopped: the user does not allow at_most_once: no")
				require.Empty(t, w.toolCalls, "lost after %d events", after)
				require.Empty(t, j.conflicts)
			}
			require.Greater(t, after, 3, "the run was long enough")
		})
	}
}

// A handler that stops the turn of a nested agent stops only that agent. The last text of that agent is a tool
// result for the parent.
// Req: AD-29, CO-63
func TestAsTool_HandlerStopsOnlyItsOwnAgent(t *testing.T) {
	w := &callCounts{toolCalls: map[string]int{}}
	aide := w.atMostOnceAgent(t, "aide", hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error { c.Stop("enough."); return nil }))
	_, done, err := runAndDescribe(t.Context(), w.parentAgent(t, "boss", aide), w.invocation(&journal{entries: map[string]execution.Entry{}}))
	require.NoError(t, err)
	require.Equal(t, event.Natural, done.Reason)
	require.Equal(t, "read [The turn was stopped: enough.|did boss]", done.Result.Text)
	require.Len(t, w.toolCalls, 1)
}
