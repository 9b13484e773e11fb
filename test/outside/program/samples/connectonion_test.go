package samples

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func call(id, name, arguments string) scripted.Reply {
	return scripted.Call(conversation.ToolCall{ID: id, Name: name, Arguments: arguments})
}

// newSearch returns the tool of the ConnectOnion samples. It reads its agent through xray, which is InTool here.
func newSearch(t *testing.T, seen *[]string) tool.Tool {
	t.Helper()
	search, err := tool.Func("search", "Searches the web.", func(ctx context.Context, in struct {
		Query string `json:"query"`
	},
	) (string, error) {
		xray := hook.InTool(ctx)
		*seen = append(*seen, xray.Info.Agent+" is asked: "+xray.Info.Prompt)
		return "results for " + in.Query, nil
	})
	require.NoError(t, err)
	return search
}

// Document 000: an agent with a tool, plugins and events; two inputs in one session; a tool outside of a turn. It differs in
// this: handlers are typed functions instead of tagged ones, they get the turn instead of the agent, and a conversation from
// turn 1 is a session with another id instead of reset_conversation.
//
// Req: CO-1, CO-7, CO-14, CO-15, CO-38, CO-51
func TestConnectOnion_AgentWithToolsPluginsAndEvents(t *testing.T) {
	var seen, log []string
	reflection, err := plugin.NewReflection(plugin.Reflection{})
	require.NoError(t, err)
	model := scripted.New(
		scripted.Say("Search, then answer."),                         // the plan of the reflection plugin
		call("1", "search", `{"query":"golang"}`),                    // round 1
		scripted.Say("That is enough."),                              // the reflection
		scripted.Say("Go is a language."),                            // the answer
		scripted.Say("Answer."), scripted.Say("You asked about Go."), // turn 2
		scripted.Say("Fine."), // the reflection about the tool outside of a turn
	)
	researcher, err := agent.New(agent.Config{
		Name: "researcher", Instructions: "You search the web.", Model: model, MaxIterations: 10,
		Tools: []tool.Tool{newSearch(t, &seen)}, Plugins: []hook.Plugin{reflection},
		Handlers: []hook.Handler{
			hook.OnAgentReady(func(a hook.Agent) error { log = append(log, "ready "+strings.Join(a.Tools, ",")); return nil }),
			hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error { log = append(log, "after_user_input"); return nil }),
			hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
				log = append(log, "before_each_tool "+c.PendingTool().Name) // pending_tool of the session
				return nil
			}),
			hook.AfterTools(func(_ context.Context, round *hook.Round) error {
				round.Add(conversation.User("Keep it short.")) // safe here: the results are complete
				log = append(log, "after_tools")
				return nil
			}),
			hook.OnComplete(func(_ context.Context, done *hook.Completion) error {
				log = append(log, "on_complete "+done.Result)
				return nil
			}),
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, researcher.Close()) })
	session, err := local.Open(t.Context(), researcher, local.Config{})
	require.NoError(t, err)

	var kinds []string
	_, err = session.Execute(t.Context(), local.Input{Text: "What is Go?"}, func(e event.Event) error {
		if e.Kind() == "llm_call" || e.Kind() == "tool_execution" || e.Kind() == "user_input" {
			kinds = append(kinds, e.Kind())
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		"ready search", "after_user_input", "before_each_tool search", "after_tools", "on_complete Go is a language.",
	}, log)
	require.Equal(t, []string{"researcher is asked: What is Go?"}, seen)
	require.Equal(t, "user_input", kinds[0])
	require.Contains(t, kinds, "tool_execution")
	last := model.Requests()[3].Messages // the message of after_tools follows all results
	require.Equal(t, "Keep it short.", last[len(last)-1].Text)

	answer, err := session.Ask(t.Context(), "What did I ask?")
	require.NoError(t, err)
	require.Equal(t, "You asked about Go.", answer)
	require.Equal(t, 2, session.Info().Turns)
	require.NoError(t, session.Close(t.Context()))

	done, err := researcher.CallTool(t.Context(), "search", `{"query":"alone"}`) // execute_tool
	require.NoError(t, err)
	require.Equal(t, "results for alone", done.Result)
}

// Document 000, the approval sample: a handler asks before a dangerous tool. It differs in this: a refusal is Reject, whose text
// the model reads, and not an exception.
//
// Req: CO-7, CO-36
func TestConnectOnion_ApprovalByAHandler(t *testing.T) {
	var seen []string
	guarded, err := local.New(t.Context(), agent.Config{
		Name: "guarded", Tools: []tool.Tool{newSearch(t, &seen)},
		Model: scripted.New(call("1", "search", `{"query":"secrets"}`), scripted.Say("I may not.")),
		Handlers: []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
			c.Reject("The user does not allow this.")
			return nil
		})},
	})
	require.NoError(t, err)
	answer, err := guarded.Ask(t.Context(), "Find secrets")
	require.NoError(t, err)
	require.Equal(t, "I may not.", answer)
	require.Empty(t, seen)
	require.NoError(t, guarded.Close(t.Context()))
}
