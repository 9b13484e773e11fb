package agent_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func namedTool(t *testing.T, names ...string) (all []tool.Tool) {
	t.Helper()
	for _, name := range names {
		one, err := tool.Func(name, "A tool of the test.", func(context.Context, struct{}) (string, error) { return name, nil })
		require.NoError(t, err)
		all = append(all, one)
	}
	return all
}

// Toolbox lists the capabilities of the tools of an agent and of its children, each tool once.
func TestToolbox_ListsCapabilities(t *testing.T) {
	child := func(name string, can map[string][]string, tools ...string) *agent.Agent {
		a, err := agent.New(agent.Config{Name: name, Model: scripted.New(), Tools: namedTool(t, tools...), ToolCapabilities: can})
		require.NoError(t, err)
		return a
	}
	one := child("one", map[string][]string{"search": {"web", "docs"}}, "search", "clock")
	require.Equal(t, []agent.ToolInfo{{Name: "search", Capabilities: []string{"docs", "web"}}, {Name: "clock"}}, one.Toolbox())
	flow, err := flow.Sequence(agent.Config{Name: "flow"}, one, child("two", map[string][]string{"clock": {"time"}}, "clock", "mail"))
	require.NoError(t, err)
	require.Equal(t, []agent.ToolInfo{
		{Name: "search", Capabilities: []string{"docs", "web"}},
		{Name: "clock", Capabilities: []string{"time"}},
		{Name: "mail"},
	}, flow.Toolbox())

	for wrong, can := range map[string]map[string][]string{
		`agent "a" is not valid: ToolCapabilities: there is no tool "serch"; there are search`:                               {"serch": {"web"}},
		`agent "a" is not valid: ToolCapabilities: search: "Web" is no capability; want 1 to 63 of a-z, 0-9, dot and hyphen`: {"search": {"Web"}},
	} {
		_, err := agent.New(agent.Config{Name: "a", Model: scripted.New(), Tools: namedTool(t, "search"), ToolCapabilities: can})
		require.Equal(t, wrong, failure.PlainMessage(err))
	}
}

// The tools that a step allows also restrict the agents of a flow, but not an agent inside a tool.
func TestAgent_UsesOnlyToolsThatTheStepMayUse(t *testing.T) {
	inner := scripted.New(scripted.Call(conversation.ToolCall{ID: "1", Name: "mail"}), scripted.Say("sent"))
	postman, err := agent.New(agent.Config{Name: "postman", Description: "Sends.", Model: inner, Tools: namedTool(t, "mail")})
	require.NoError(t, err)
	asking, err := flow.AsTool(postman, flow.AsToolConfig{})
	require.NoError(t, err)
	outer := scripted.New(scripted.Call(conversation.ToolCall{ID: "1", Name: "postman", Arguments: `{"request":"send it"}`}), scripted.Say("done"))
	writer, err := agent.New(agent.Config{Name: "writer", Model: outer, Tools: append(namedTool(t, "clock"), asking)})
	require.NoError(t, err)
	flow, err := flow.Sequence(agent.Config{Name: "flow"}, writer)
	require.NoError(t, err)
	step := execution.Step{History: []conversation.Message{conversation.User("go")}, Tools: &execution.Tools{Names: []string{"postman"}}}
	done, err := flow.Execute(t.Context(), agent.Invocation{Step: step}, nil)
	require.NoError(t, err)
	require.Equal(t, "done", done.Result.Text)
	require.Len(t, outer.Requests()[0].Tools, 1)
	require.Equal(t, "postman", outer.Requests()[0].Tools[0].Name)
	require.Len(t, inner.Requests()[0].Tools, 1, "its own")
	require.Len(t, inner.Requests(), 2)
}
