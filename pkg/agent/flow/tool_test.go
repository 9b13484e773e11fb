package flow_test

import (
	"context"
	"encoding/json"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// mustBuildTool returns an agent as a tool and fails the test if that is invalid.
func mustBuildTool(t *testing.T, a *agent.Agent) tool.Tool {
	t.Helper()
	made, err := flow.AsTool(a, flow.AsToolConfig{})
	require.NoError(t, err)
	return made
}

// agentThatCallsTool returns an agent that calls its tool once, and then says the result.
func agentThatCallsTool(t *testing.T, asked tool.Tool, handlers ...hook.Handler) *agent.Agent {
	t.Helper()
	return build(t, agent.Config{
		Name: "boss", Tools: []tool.Tool{asked}, Handlers: handlers, OutputKey: "answer",
		Model: scripted.New(
			scripted.Reply{ToolCalls: []conversation.ToolCall{newToolCall(asked.Spec().Name, "request", "Find it.")}, Usage: execution.Usage{OutputTokens: 10}},
			scripted.Reply{Deltas: []string{"Done."}, Usage: execution.Usage{OutputTokens: 10}},
		),
	})
}

// Req: AD-29
func TestAsTool_HasItsOwnSession(t *testing.T) {
	var info hook.Info
	model := scripted.New(lookupReply("a"), scripted.Reply{Deltas: []string{"Found a."}, Usage: execution.Usage{OutputTokens: 5}})
	finder := build(t, agent.Config{
		Name: "finder", Description: "Finds things.", Model: model, Tools: []tool.Tool{lookup(t)}, OutputKey: "finding",
		Instructions: "{color} {finding?}", Handlers: []hook.Handler{
			hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error {
				info = turn.Info()
				info.Context = 0
				return turn.Memory().Set("color", "red")
			}),
		},
	})
	var result string
	var spent execution.Usage
	boss := agentThatCallsTool(t, mustBuildTool(t, finder),
		hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error { return turn.Memory().Set("color", "blue") }),
		hook.AfterEachTool(func(_ context.Context, c *hook.Call) error {
			result, spent = c.Text, c.Usage()
			return nil
		}),
	)
	step := questionStep("Where is it?")
	step.SessionID, step.TurnID, step.User, step.TraceID = "session-1", "turn-1", "alice", "trace-1"
	events, done, err := runAndDescribe(t.Context(), boss, agent.Invocation{Step: step})
	require.NoError(t, err)

	require.Equal(t, []conversation.Message{conversation.User("Find it.")}, model.Requests()[0].Messages, "nothing of the parent's conversation")
	require.Equal(t, "blue ", model.Requests()[0].System, "the parent's state")
	require.Equal(t, "Found a.", result)
	require.Equal(t, []string{
		"user user_input", "boss llm_call", "boss tool_call", "boss tool_execution", "boss message", "boss text_delta",
		"boss llm_call", "boss assistant", "boss message", "boss turn_result",
	}, events)
	require.Equal(t, execution.Usage{ModelCalls: 3, OutputTokens: 15}, spent, "at once")
	require.Equal(t, execution.Usage{ModelCalls: 4, OutputTokens: 25}, done.Result.Usage)
	require.Equal(t, 2, done.Result.Iterations)
	require.Equal(t, []string{"finder"}, done.Result.ToolsCalled)
	require.Equal(t, map[string]json.RawMessage{"color": json.RawMessage(`"blue"`), "answer": json.RawMessage(`"Done."`)}, done.State,
		"its changes are dropped")

	key := stepjournal.CallKey("turn-1", 2, 2)
	require.Equal(t, hook.Info{
		Agent: "finder", Model: scripted.Name, Session: "sub-" + key, User: "alice", TurnID: key, TraceID: "trace-1",
		Step: 2, Branch: "boss.finder", Prompt: "Find it.",
	}, info)
}

func TestAsTool_DescribesItselfToTheModel(t *testing.T) {
	child, _ := sayingAgent(t, "child")
	made := mustBuildTool(t, child)
	require.Equal(t, "child", made.Spec().Name)
	require.Equal(t, "Asks the agent child.", made.Spec().Description)
	named, err := flow.AsTool(child, flow.AsToolConfig{Name: "ask_child", Description: "Knows it all."})
	require.NoError(t, err)
	require.Equal(t, "ask_child", named.Spec().Name)
	require.Equal(t, "Knows it all.", named.Spec().Description)
	_, err = made.Call(t.Context(), json.RawMessage(`{"question": "?"}`))
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
	_, err = flow.AsTool(child, flow.AsToolConfig{Name: "no spaces"})
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
}

func TestAsTool_HasTheStrictestEffect(t *testing.T) {
	with := func(name string, tools ...tool.Tool) *agent.Agent {
		return build(t, agent.Config{Name: name, Model: scripted.New(), Tools: tools})
	}
	reads, writes := tool.WithEffect(execution.Read, lookup(t)), tool.WithEffect(execution.Idempotent, lookup(t))
	for want, a := range map[execution.Effect][]*agent.Agent{
		execution.Read:       {with("none"), with("reads", reads)},
		execution.Idempotent: {with("writes", writes), mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "flow"}, with("a", reads), with("b", writes)))},
		execution.AtMostOnce: {with("undeclared", lookup(t)), with("nested", mustBuildTool(t, with("inner", lookup(t))))},
	} {
		for _, one := range a {
			require.Equal(t, want, tool.EffectOf(mustBuildTool(t, one)), one.Name())
		}
	}
	own := build(t, agent.Config{Name: "own", Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] { return nil }})
	require.Equal(t, execution.Idempotent, tool.EffectOf(mustBuildTool(t, own)))
}

func TestAsTool_ReturnsTheOutcomeOfTheAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		child  agent.Config
		status event.ToolStatus
		text   string
		reason event.Reason
	}{
		"an error": {agent.Config{Model: scripted.New(scripted.Reply{Usage: execution.Usage{InputTokens: 7}, Err: failure.New(failure.ResourceAPI, "test",
			"The model is down.")})}, event.ToolError, "Error: The model is down.", event.Natural},
		"a question": {agent.Config{
			Model:    scripted.New(scripted.Reply{Deltas: []string{"Which one?"}, Usage: execution.Usage{InputTokens: 7}}),
			AsksUser: true,
		}, event.ToolAsked, "Which one?", event.InputRequired},
	} {
		t.Run(name, func(t *testing.T) {
			tc.child.Name = "child"
			var told event.ToolFinished
			done, err := agentThatCallsTool(t, mustBuildTool(t, build(t, tc.child))).Execute(t.Context(), agent.Invocation{Step: questionStep("hi")},
				func(e event.Event) error {
					if p, ok := e.Payload.(event.ToolFinished); ok {
						told = p
					}
					return nil
				})
			require.NoError(t, err)
			require.Equal(t, tc.status, told.Status)
			require.Equal(t, tc.text, told.Result)
			require.Equal(t, tc.reason, done.Reason)
			require.EqualValues(t, 7, done.Result.Usage.InputTokens)
		})
	}
}

func TestAsTool_EscalatesForItsParent(t *testing.T) {
	child := build(t, agent.Config{Name: "child", Model: scripted.New(scripted.Say("Enough.")), Handlers: []hook.Handler{
		hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error { turn.Escalate(); return nil }),
	}})
	rounds := mustBuildFlow(t)(flow.Repeat(agent.Config{Name: "rounds"}, 3, agentThatCallsTool(t, mustBuildTool(t, child))))
	_, done, err := runAndDescribe(t.Context(), rounds, agent.Invocation{Step: questionStep("hi")})
	require.NoError(t, err)
	require.Equal(t, 2, done.Result.Iterations, "one round")
}

// Req: CO-63
func TestAsTool_IsStoppedWithItsParent(t *testing.T) {
	stop, now := context.WithCancel(t.Context())
	child := build(t, agent.Config{Name: "child", Model: scripted.New(scripted.Reply{Wait: make(chan struct{})}), Handlers: []hook.Handler{
		hook.BeforeLLM(func(context.Context, *hook.LLMRequest) error { now(); return nil }),
	}})
	_, done, err := runAndDescribe(t.Context(), agentThatCallsTool(t, mustBuildTool(t, child)), agent.Invocation{Step: questionStep("hi"), Stop: stop})
	require.NoError(t, err)
	require.Equal(t, event.Stopped, done.Reason)
}

// An agent that can call itself as a tool does so until MaxDepth is exceeded.
func TestAsTool_LimitsItsDepth(t *testing.T) {
	type in struct {
		Request string `json:"request"`
	}
	var self tool.Tool
	again, err := tool.Func("again", "Asks the agent itself.", func(ctx context.Context, in in) (string, error) {
		text, err := self.Call(ctx, json.RawMessage(`{"request": "`+in.Request+`"}`))
		return text.Text, err
	})
	require.NoError(t, err)
	w := &callCounts{toolCalls: map[string]int{}}
	child := build(t, agent.Config{
		Name: "child", Model: callingModel{w, []conversation.ToolCall{newToolCall("again", "request", "more")}},
		Tools: []tool.Tool{again},
	})
	self = mustBuildTool(t, child)
	result, err := self.Call(t.Context(), json.RawMessage(`{"request": "begin"}`))
	require.NoError(t, err)
	require.Contains(t, result.Text, "at most 4 agents may be tools inside each other")
	require.Equal(t, 2*flow.MaxDepth, w.modelCalls)
}

// Inside another tool an agent runs without a journal, and its keys begin with the key of the call.
func TestAsTool_InsideAnotherToolHasNoJournal(t *testing.T) {
	keys := func() []string {
		w := &callCounts{toolCalls: map[string]int{}}
		boss := agentThatCallsTool(t, tool.WithEffect(execution.Idempotent, mustBuildTool(t, w.workerAgent(t, "aide"))))
		j := &journal{entries: map[string]execution.Entry{}}
		_, _, err := runAndDescribe(t.Context(), boss, w.invocation(j))
		require.NoError(t, err)
		require.Len(t, j.entries, 2, "the reply of the boss, and the tool")
		var all []string
		for did := range w.toolCalls {
			all = append(all, did)
		}
		return all
	}
	call := stepjournal.CallKey("turn-1", 2, 2)
	require.ElementsMatch(t, []string{
		"read aide r " + stepjournal.CallKey(call, 2, 2), "idempotent aide i " + stepjournal.CallKey(call, 2, 3),
	}, keys())
}

// Req: LC-30
func TestAsTool_StartsAndClosesItsAgent(t *testing.T) {
	var log []string
	child := build(t, agent.Config{Name: "child", Model: scripted.New(), Tools: []tool.Tool{&loggedResource{name: "one", log: &log}}})
	boss := agentThatCallsTool(t, mustBuildTool(t, child))
	require.NoError(t, boss.Start(t.Context()))
	require.NoError(t, boss.Close())
	require.Equal(t, []string{"start one", "close one"}, log)
}
