package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// newWatchedTools returns the tools of the watched turns. The tool named stop calls the function stop.
func newWatchedTools(t *testing.T, stop func()) []tool.Tool {
	t.Helper()
	var all []tool.Tool
	add := func(name string, fn func(context.Context, wordArgs) (string, error)) {
		one, err := tool.Func(name, "A tool of the test.", fn)
		require.NoError(t, err)
		all = append(all, one)
	}
	add("echo", func(_ context.Context, in wordArgs) (string, error) { return in.Word, nil })
	add("fail", func(context.Context, wordArgs) (string, error) { return "", errors.New("the disk is full") })
	add("ask", func(context.Context, wordArgs) (string, error) { return "", tool.AskUser("Which one?") })
	add("stop", func(ctx context.Context, _ wordArgs) (string, error) {
		stop()
		<-ctx.Done()
		return "", ctx.Err()
	})
	add("late", func(context.Context, wordArgs) (string, error) { stop(); return "done all the same", nil })
	return all
}

// TestTurn_HooksAndEventsInOrder checks which hooks run and which events are emitted in a turn, how often, and in
// which order.
// Req: CO-16, CO-23, CO-27, CO-28, CO-30, CO-32, CO-34, CO-40, LP-14, LP-15, LP-16, C-8, C-12
func TestTurn_HooksAndEventsInOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		replies []scripted.Reply
		config  agent.Config
		want    string
		text    string
	}{
		"no tools": {
			replies: []scripted.Reply{scripted.Say("hello")},
			want:    logBegin + logSay + logAnswer,
			text:    "hello",
		},
		"one round of three tools": {
			replies: []scripted.Reply{toolCallsReply("echo", "echo", "echo"), scripted.Say("done")},
			want: logBegin +
				logAsk + toolLog(1, event.ToolSuccess) + toolLog(2, event.ToolSuccess) + toolLog(3, event.ToolSuccess) + "after_tools after_iteration " +
				logSay + logAnswer,
			text: "done",
		},
		"two rounds": {
			replies: []scripted.Reply{toolCallsReply("echo"), scripted.Call(toolCall("2", "echo", "b")), scripted.Say("done")},
			want: logBegin +
				logAsk + toolLog(1, event.ToolSuccess) + "after_tools after_iteration " +
				logAsk + toolLog(2, event.ToolSuccess) + "after_tools after_iteration " +
				logSay + logAnswer,
			text: "done",
		},
		"a tool that fails": {
			replies: []scripted.Reply{toolCallsReply("echo", "fail"), scripted.Say("done")},
			want: logBegin +
				logAsk + toolLog(1, event.ToolSuccess) + toolLog(2, event.ToolError) + "after_tools after_iteration " +
				logSay + logAnswer,
			text: "done",
		},
		"missing tool": {
			replies: []scripted.Reply{toolCallsReply("nothing"), scripted.Say("done")},
			want: logBegin +
				logAsk + ">tool_call:1 >tool_execution:1:not_found on_error:1 after_each_tool:1 >appended:tool:1 after_tools after_iteration " +
				logSay + logAnswer,
			text: "done",
		},
		"tool call answered by a handler": {
			replies: []scripted.Reply{toolCallsReply("echo", "echo"), scripted.Say("done")},
			config: agent.Config{Handlers: []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
				if c.ID == "1" {
					c.Answer("I know")
				} else {
					c.Reject("not allowed")
				}
				return nil
			})}},
			want: logBegin +
				logAsk + toolLog(1, event.ToolSuccess) + toolLog(2, event.ToolError) + "after_tools after_iteration " +
				logSay + logAnswer,
			text: "done",
		},
		"a handler of before_each_tool that fails": {
			replies: []scripted.Reply{toolCallsReply("echo", "echo"), scripted.Say("done")},
			config: agent.Config{Handlers: []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
				if c.ID == "1" {
					return errors.New("no")
				}
				return nil
			})}},
			want: logBegin +
				logAsk + toolLog(1, event.ToolError) + toolLog(2, event.ToolSuccess) + "after_tools after_iteration " +
				logSay + logAnswer,
			text: "done",
		},
		"failed model call answered by a handler": {
			replies: []scripted.Reply{scripted.Fail(errors.New("down"))},
			config: agent.Config{Handlers: []hook.Handler{hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error {
				f.Respond("later")
				return nil
			})}},
			want: logBegin + "before_iteration before_llm on_llm_error after_llm >appended:assistant after_iteration " + logAnswer,
			text: "later",
		},
		"model call answered by a handler": {
			config: agent.Config{Handlers: []hook.Handler{hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error {
				r.Respond("I know")
				return nil
			})}},
			want: logBegin + "before_iteration before_llm after_llm >appended:assistant after_iteration " + logAnswer,
			text: "I know",
		},
		"limit of iterations without text": {
			replies: []scripted.Reply{toolCallsReply("echo"), scripted.Call(toolCall("2", "echo", "b"))},
			config:  agent.Config{MaxIterations: 2},
			want: logBegin +
				logAsk + toolLog(1, event.ToolSuccess) + "after_tools after_iteration " +
				logAsk + toolLog(2, event.ToolSuccess) + "after_tools after_iteration " +
				">warning:MAX_ITERATIONS >appended:assistant >answer:max_iterations after_agent on_complete >turn_result:max_iterations",
			text: "Task incomplete: Maximum iterations (2) reached.",
		},
		"limit of iterations with text": {
			replies: []scripted.Reply{{Deltas: []string{"Let me see."}, ToolCalls: toolCallsReply("echo").ToolCalls}},
			config:  agent.Config{MaxIterations: 1},
			want: logBegin +
				strings.Replace(logAsk, ">llm_call", ">text_delta >llm_call", 1) + toolLog(1, event.ToolSuccess) + "after_tools after_iteration " +
				">warning:MAX_ITERATIONS >answer:max_iterations after_agent on_complete >turn_result:max_iterations",
			text: "Let me see.",
		},
		"a tool that asks the user": {
			replies: []scripted.Reply{toolCallsReply("ask", "echo"), scripted.Say("never")},
			want: logBegin +
				logAsk + toolLog(1, event.ToolAsked) + toolLog(2, event.ToolSuccess) + "after_tools after_iteration " +
				">answer:input_required after_agent on_complete >turn_result:input_required",
			text: "Which one?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.Model, tc.config.Tools = scripted.New(tc.replies...), newWatchedTools(t, nil)
			w := runWatchedTurn(t, tc.config, agent.Invocation{}, nil)
			require.NoError(t, w.err)
			require.Equal(t, strings.Fields(tc.want), strings.Fields(w.text()))
			require.Equal(t, tc.text, w.result.Result.Text)
			require.Equal(t, name == "a tool that asks the user", w.result.Result.InputRequired)
			require.Equal(t, strings.HasPrefix(name, "limit of iterations"), w.result.Result.Incomplete == string(event.MaxIterations))
		})
	}
}

// Req: LP-33
func TestTurn_FailsAfterThreeToolFailuresInARow(t *testing.T) {
	failing := func(replies ...scripted.Reply) *watchedTurn {
		return runWatchedTurn(t, agent.Config{Model: scripted.New(replies...), Tools: newWatchedTools(t, nil)}, agent.Invocation{}, nil)
	}
	one := func(id, name string) scripted.Reply { return scripted.Call(toolCall(id, name, "x")) }

	w := failing(one("1", "fail"), one("2", "nothing"), one("3", "fail"), scripted.Say("never"))
	require.True(t, failure.Is(w.err, failure.ResourceTool), "%v", w.err)
	reason, _ := errors.AsType[*failure.Error](w.err)
	require.Equal(t, "consecutive-tool-failures", reason.Facts["reason"])
	require.True(t, strings.HasSuffix(w.text(), "after_each_tool:3 >appended:tool:3 after_tools "+logFail), w.text())

	w = failing(one("1", "fail"), one("2", "fail"), one("3", "echo"), one("4", "fail"), one("5", "fail"), scripted.Say("done"))
	require.NoError(t, w.err, "a success begins the count anew")
	require.Equal(t, "done", w.result.Result.Text)

	skip := hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		if c.ID == "3" {
			c.Skip("the user does not want it")
		}
		return nil
	})
	w = runWatchedTurn(t, agent.Config{
		Model: scripted.New(one("1", "fail"), one("2", "fail"), one("3", "echo"), one("4", "fail"), scripted.Say("never")),
		Tools: newWatchedTools(t, nil), Handlers: []hook.Handler{skip},
	}, agent.Invocation{}, nil)
	require.True(t, failure.Is(w.err, failure.ResourceTool), "what did not run is no success: %v", w.err)
}

// Events of an earlier attempt are emitted as replayed, and handlers run again.
// Req: CO-40
func TestTurn_ReplaysWithAllHooks(t *testing.T) {
	j := &fakeJournal{}
	config := func(replies ...scripted.Reply) agent.Config {
		return agent.Config{Model: scripted.New(replies...), Tools: newWatchedTools(t, nil)}
	}
	lost := runWatchedTurn(t, config(toolCallsReply("echo", "fail", "echo")), journaledLog(j, agent.Invocation{}), func(token string) bool {
		return token == ">tool_execution:2:error"
	})
	require.Equal(t, ">tool_execution:2:error", lost.log[len(lost.log)-1])

	w := runWatchedTurn(t, config(scripted.Say("done")), journaledLog(j, agent.Invocation{}), nil)
	require.NoError(t, w.err)
	require.Equal(t, strings.Fields(logBegin+
		"before_iteration before_llm >llm_call:replayed after_llm >appended:assistant before_tools "+
		"before_each_tool:1 >tool_execution:1:success:replayed after_each_tool:1 >appended:tool:1 "+
		"before_each_tool:2 >tool_execution:2:error:replayed on_error:2 after_each_tool:2 >appended:tool:2 "+
		toolLog(3, event.ToolSuccess)+"after_tools after_iteration "+logSay+logAnswer), strings.Fields(w.text()))
	require.Equal(t, 2, w.result.Result.Usage.ModelCalls)
}

// Req: CO-25
func TestTurn_HandlersChangeRequestsAndCalls(t *testing.T) {
	model := scripted.New(toolCallsReply("echo", "fail"), scripted.Say("done"))
	w := runWatchedTurn(t, agent.Config{Model: model, Tools: newWatchedTools(t, nil), Handlers: []hook.Handler{
		hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error {
			if r.Iteration() == 1 {
				r.Add(conversation.User("and be quick"))
			}
			r.System += " Now."
			return nil
		}),
		hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
			if len(r.ToolCalls) > 0 {
				r.ToolCalls = append(r.ToolCalls[:1:1], toolCall("3", "echo", "other"))
			}
			return nil
		}),
	}}, agent.Invocation{}, nil)
	require.NoError(t, w.err)
	asked := model.Requests()
	require.Equal(t, "and be quick", asked[0].Messages[1].Text)
	require.True(t, strings.HasSuffix(asked[0].System, " Now."))
	require.Len(t, asked[1].Messages, 5)
	require.Equal(t, []string{"1", "other"}, []string{asked[1].Messages[3].Text, asked[1].Messages[4].Text})
	require.NotContains(t, w.text(), ":2")
}
