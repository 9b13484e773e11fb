package loop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// callLog records the hooks and events of a turn in order. A hook is recorded by its name and an event as ">kind".
// Both are followed by the id of their tool call.
type callLog struct{ log []string }

func (l *callLog) add(parts ...string) {
	parts = append([]string(nil), parts...)
	l.log = append(l.log, strings.TrimRight(strings.Join(parts, ":"), ":"))
}

// plugin returns a plug-in that records each hook.
func (l *callLog) plugin() hook.Plugin {
	turn := func(name string) func(context.Context, *hook.Turn) error {
		return func(context.Context, *hook.Turn) error { l.add(name); return nil }
	}
	reply := func(name string) func(context.Context, *hook.Turn) (string, error) {
		return func(context.Context, *hook.Turn) (string, error) { l.add(name); return "", nil }
	}
	round := func(name string) func(context.Context, *hook.Round) error {
		return func(context.Context, *hook.Round) error { l.add(name); return nil }
	}
	call := func(name string) func(context.Context, *hook.Call) error {
		return func(_ context.Context, c *hook.Call) error { l.add(name, c.ID); return nil }
	}
	return hook.Plugin{Name: "watch", Handlers: []hook.Handler{
		hook.OnAgentReady(func(hook.Agent) error { l.add("on_agent_ready"); return nil }),
		hook.BeforeAgent(reply("before_agent")), hook.AfterAgent(reply("after_agent")),
		hook.AfterUserInput(turn("after_user_input")),
		hook.BeforeIteration(turn("before_iteration")), hook.AfterIteration(turn("after_iteration")),
		hook.BeforeLLM(func(context.Context, *hook.LLMRequest) error { l.add("before_llm"); return nil }),
		hook.AfterLLM(func(context.Context, *hook.LLMReply) error { l.add("after_llm"); return nil }),
		hook.OnLLMError(func(context.Context, *hook.LLMFailure) error { l.add("on_llm_error"); return nil }),
		hook.BeforeTools(round("before_tools")), hook.AfterTools(round("after_tools")),
		hook.BeforeEachTool(call("before_each_tool")), hook.AfterEachTool(call("after_each_tool")),
		hook.OnError(call("on_error")), hook.OnStopSignal(turn("on_stop_signal")),
		hook.OnComplete(func(context.Context, *hook.Completion) error { l.add("on_complete"); return nil }),
	}}
}

func (l *callLog) addEvent(e event.Event) {
	replayed := func(yes bool) string {
		if yes {
			return "replayed"
		}
		return ""
	}
	switch p := e.Payload.(type) {
	case event.ModelCall:
		l.add(">llm_call", replayed(p.Replayed))
	case event.ToolStarted:
		l.add(">tool_call", p.CallID)
	case event.ToolFinished:
		l.add(">tool_execution", p.CallID, string(p.Status), replayed(p.Replayed))
	case event.MessageAppended:
		if strings.HasPrefix(l.log[len(l.log)-1], ">answer") {
			return // hooks of an answer that the model did not give
		}
		l.add(">appended", string(p.Message.Role), p.Message.ToolCallID)
	case event.Warning:
		l.add(">warning", p.Reason)
	case event.Answer:
		l.add(">answer", string(p.Reason))
	case event.TurnResult:
		l.add(">turn_result", string(p.Reason))
	default:
		l.add(">" + p.Kind())
	}
}

// watchedTurn holds the log and the result of a turn of a watched agent.
type watchedTurn struct {
	callLog
	result event.TurnResult
	err    error
}

// text returns the log as text, without the events of the agent's construction.
func (w *watchedTurn) text() string {
	return strings.TrimPrefix(strings.Join(w.log, " "), "on_agent_ready ")
}

// runWatchedTurn runs one turn of a watched agent, whose own handlers run after the watching ones. stop determines
// where the worker is lost.
func runWatchedTurn(t *testing.T, c agent.Config, inv agent.Invocation, stop func(token string) bool) *watchedTurn {
	t.Helper()
	w := &watchedTurn{}
	c.Name = "test"
	c.Plugins = append([]hook.Plugin{w.plugin()}, c.Plugins...)
	a, err := agent.New(c)
	require.NoError(t, err)
	inv.Step.Number, inv.Step.Turn, inv.Step.TurnID = 1, 1, "turn-1"
	inv.Step.History = []conversation.Message{conversation.User("go")}
	for e, err := range a.Run(t.Context(), inv) {
		if err != nil {
			w.err = err
			continue
		}
		require.NoError(t, w.err, "an event after the error")
		w.addEvent(e)
		if done, ok := e.Payload.(event.TurnResult); ok {
			w.result = done
		}
		if stop != nil && stop(w.log[len(w.log)-1]) {
			break
		}
	}
	return w
}

// These are the parts from which the expected logs are composed.
const (
	logBegin  = ">user_input before_agent after_user_input "
	logAsk    = "before_iteration before_llm >llm_call after_llm >appended:assistant before_tools "
	logSay    = "before_iteration before_llm >text_delta >llm_call after_llm >appended:assistant after_iteration "
	logAnswer = ">answer:natural after_agent on_complete >turn_result:natural"
	logStop   = "after_iteration on_stop_signal >answer:stopped >turn_result:stopped"
	logFail   = ">error >turn_result:error"
)

// toolLog returns the expected log of a tool call that ended with the given status.
func toolLog(id int, status event.ToolStatus) string {
	failed := ""
	if status == event.ToolError {
		failed = " on_error:" + fmt.Sprint(id)
	}
	return fmt.Sprintf("before_each_tool:%[1]d >tool_call:%[1]d >tool_execution:%[1]d:%[2]s%[3]s after_each_tool:%[1]d >appended:tool:%[1]d ", id, status,
		failed)
}

// skippedLog returns the expected log of calls that got a result without running.
func skippedLog(ids ...int) string {
	text := ""
	for _, id := range ids {
		text += fmt.Sprintf(">appended:tool:%d ", id)
	}
	return text
}

// toolCallsReply returns a model reply that calls the given tools, with ids from 1.
func toolCallsReply(tools ...string) scripted.Reply {
	var all []conversation.ToolCall
	for i, name := range tools {
		all = append(all, toolCall(fmt.Sprint(i+1), name, fmt.Sprint(i+1)))
	}
	return scripted.Call(all...)
}

func journaledLog(j execution.Journal, inv agent.Invocation) agent.Invocation {
	inv.Step.Journal = j
	return inv
}
