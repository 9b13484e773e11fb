package loop_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// handlerFor returns a handler of the named event that calls fn.
func handlerFor(name string, fn func(*hook.Turn) error) hook.Handler {
	turn := func(_ context.Context, t *hook.Turn) error { return fn(t) }
	reply := func(_ context.Context, t *hook.Turn) (string, error) { return "", fn(t) }
	round := func(_ context.Context, r *hook.Round) error { return fn(r.Turn) }
	call := func(_ context.Context, c *hook.Call) error { return fn(c.Turn) }
	return map[string]hook.Handler{
		"before_agent": hook.BeforeAgent(reply), "after_agent": hook.AfterAgent(reply),
		"after_user_input": hook.AfterUserInput(turn), "on_stop_signal": hook.OnStopSignal(turn),
		"before_iteration": hook.BeforeIteration(turn), "after_iteration": hook.AfterIteration(turn),
		"before_llm":   hook.BeforeLLM(func(_ context.Context, r *hook.LLMRequest) error { return fn(r.Turn) }),
		"after_llm":    hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error { return fn(r.Turn) }),
		"on_llm_error": hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error { return fn(f.Turn) }),
		"before_tools": hook.BeforeTools(round), "after_tools": hook.AfterTools(round),
		"before_each_tool": hook.BeforeEachTool(call), "after_each_tool": hook.AfterEachTool(call), "on_error": hook.OnError(call),
		"on_complete": hook.OnComplete(func(_ context.Context, c *hook.Completion) error { return fn(c.Turn) }),
	}[name]
}

// configReachingEvent returns the configuration of an agent whose turn reaches the named event.
func configReachingEvent(t *testing.T, name string) agent.Config {
	c := agent.Config{Tools: newWatchedTools(t, nil), Model: scripted.New(toolCallsReply("fail"), scripted.Say("done"))}
	switch name {
	case "on_llm_error":
		c.Model = scripted.New(scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")))
	case "on_stop_signal":
		c.Handlers = []hook.Handler{handlerFor("before_llm", func(t *hook.Turn) error { t.Stop("enough"); return nil })}
	}
	return c
}

// hooks lists all events except OnAgentReady and BeforeEachTool. An error of BeforeEachTool fails only the tool.
var hooks = []string{
	"before_agent", "after_user_input", "before_iteration", "before_llm", "on_llm_error", "after_llm", "before_tools",
	"on_error", "after_each_tool", "after_tools", "after_iteration", "on_stop_signal", "after_agent", "on_complete",
}

// A turn runs until a handler fails, and ends with the error of that handler. A panic of a handler counts as an
// error.
// Req: CO-40, CO-41, C-10
func TestTurn_FailsWithTheErrorOfAHandler(t *testing.T) {
	broke := failure.New(failure.PolicyBudget, "test", "the budget is used up")
	for _, name := range hooks {
		whole := runWatchedTurn(t, configReachingEvent(t, name), agent.Invocation{}, nil)
		until := slices.IndexFunc(whole.log, func(token string) bool { return strings.Split(token, ":")[0] == name })
		require.Positive(t, until, "%s is not on its path: %s", name, whole.text())
		for how, fn := range map[string]func(*hook.Turn) error{
			"error": func(*hook.Turn) error { return broke },
			"panic": func(*hook.Turn) error { panic("oh") },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				c, after := configReachingEvent(t, name), false
				c.Plugins = []hook.Plugin{
					{Name: "broken", Handlers: []hook.Handler{handlerFor(name, fn)}},
					{Name: "behind", Handlers: []hook.Handler{handlerFor(name, func(*hook.Turn) error { after = true; return nil })}},
				}
				w := runWatchedTurn(t, c, agent.Invocation{}, nil)
				if how == "error" {
					require.ErrorIs(t, w.err, broke)
					require.True(t, failure.Is(w.err, failure.PolicyBudget), "%v", w.err)
				} else {
					require.True(t, failure.Is(w.err, failure.AgentLogic), "%v", w.err)
				}
				require.ErrorContains(t, w.err, name+" of plugin broken")
				require.False(t, after)
				// The result text of a tool is emitted even if a later handler fails and ends the turn.
				rest := slices.DeleteFunc(slices.Clone(w.log[until+1:]), func(token string) bool { return strings.HasPrefix(token, ">appended:tool") })
				require.Equal(t, []string{">error", ">turn_result:error"}, rest)
				require.Equal(t, whole.log[:until+1], w.log[:until+1])
				require.Equal(t, string(failure.ModeOf(w.err)), w.result.ErrorType)
			})
		}
	}
}

// Req: CO-36
func TestTurn_ErrorOfBeforeEachToolFailsOnlyTheTool(t *testing.T) {
	for name, fn := range map[string]func(*hook.Turn) error{
		"error": func(*hook.Turn) error { return failure.New(failure.PolicySecurity, "test", "not allowed") },
		"panic": func(*hook.Turn) error { panic("oh") },
	} {
		t.Run(name, func(t *testing.T) {
			var seen []*hook.Call
			model := scripted.New(toolCallsReply("echo", "nothing"), scripted.Say("done"))
			c := agent.Config{Model: model, Tools: newWatchedTools(t, nil), Handlers: []hook.Handler{
				handlerFor("before_each_tool", fn),
				hook.OnError(func(_ context.Context, c *hook.Call) error {
					require.Error(t, c.Err)
					seen = append(seen, c)
					return nil
				}),
			}}
			w := runWatchedTurn(t, c, agent.Invocation{}, nil)
			require.NoError(t, w.err)
			require.Contains(t, w.text(), toolLog(1, event.ToolError))
			require.Len(t, seen, 2, "and the tool that there is not")
			require.True(t, strings.HasPrefix(model.Requests()[1].Messages[2].Text, "Error: "))
		})
	}
}

// A handler can replace the reply of a model, the result of a tool, or the error of either.
// Req: AD-31
func TestTurn_HandlersReplaceModelRepliesAndToolResults(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		model := scripted.New(toolCallsReply("echo", "echo", "fail", "nothing"), scripted.Fail(errors.New("down")))
		w := runWatchedTurn(t, agent.Config{Model: model, Tools: newWatchedTools(t, nil), Parallel: parallel, MaxFailures: 9, Handlers: []hook.Handler{
			hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
				if c.ID == "1" {
					c.Answer("from a handler")
				}
				return nil
			}),
			hook.AfterEachTool(func(_ context.Context, c *hook.Call) error {
				if c.ID == "2" {
					c.Text += ", made longer"
				}
				return nil
			}),
			hook.OnError(func(_ context.Context, c *hook.Call) error {
				if c.ID == "3" {
					require.EqualError(t, c.Err, "the disk is full")
					c.Text = "there is still some room"
				}
				return nil
			}),
			hook.OnLLMError(func(_ context.Context, f *hook.LLMFailure) error {
				require.EqualError(t, f.Err, "down")
				var read []string
				for _, m := range f.Messages()[2:] {
					read = append(read, m.Text)
				}
				f.Respond(strings.Join(read, "; "))
				return nil
			}),
			hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
				if r.Iteration() == 2 {
					r.Text += "!"
				}
				return nil
			}),
		}}, agent.Invocation{}, nil)
		require.NoError(t, w.err)
		require.Equal(t, `from a handler; 2, made longer; there is still some room; There is no tool "nothing"; there are echo, fail, ask, stop, late.!`,
			w.result.Result.Text)
	}
}

// No handler runs after the one that ends the turn. Calls that the model has requested still get a result.
// Req: AD-8, AD-11
func TestTurn_RunsNoHandlerAfterTheOneThatEndsIt(t *testing.T) {
	for _, name := range append(hooks, "before_each_tool") {
		t.Run(name, func(t *testing.T) {
			c, after := configReachingEvent(t, name), false
			c.Handlers = append(c.Handlers,
				handlerFor(name, func(t *hook.Turn) error { t.End(); return nil }),
				handlerFor(name, func(*hook.Turn) error { after = true; return nil }))
			w := runWatchedTurn(t, c, agent.Invocation{}, nil)
			if name == "on_llm_error" {
				require.Error(t, w.err, "no handler answered for the model")
				return
			}
			require.NoError(t, w.err)
			require.False(t, after)
			last := slices.IndexFunc(w.log, func(token string) bool { return strings.Split(token, ":")[0] == name })
			for _, token := range w.log[last+1:] {
				require.True(t, strings.HasPrefix(token, ">"), "%s after the end: %s", token, w.text())
			}
			require.Equal(t, strings.Count(w.text(), ">appended:tool"), min(1, strings.Count(w.text(), "before_tools")), w.text())
		})
	}
}

// A call id belongs to only one call of the turn, even after the messages that used it were removed.
// Req: CO-47
func TestTurn_CallIDsStayUniqueAfterReplace(t *testing.T) {
	compact := hook.AfterTools(func(_ context.Context, r *hook.Round) error {
		return r.Replace([]conversation.Message{conversation.User("a summary")})
	})
	w := runWatchedTurn(t, agent.Config{
		Model: scripted.New(toolCallsReply("echo"), toolCallsReply("echo"), scripted.Say("done")), Tools: newWatchedTools(t,
			nil), Handlers: []hook.Handler{compact},
	}, agent.Invocation{}, nil)
	require.NoError(t, w.err)
	require.Contains(t, w.text(), ">tool_call:1 ")
	require.Contains(t, w.text(), ">tool_call:call_1 ")
}

// Handlers see the turn in its state at the time of their event, including the pending calls.
// Req: CO-17, CO-18, CO-21, CO-39a
func TestTurn_HandlersSeePendingCalls(t *testing.T) {
	type view struct {
		iteration, messages, pending int
		tool                         string
		percent                      float64
	}
	seen := map[string][]view{}
	var watching []hook.Handler
	look := func(name string) func(*hook.Turn) error {
		return func(t *hook.Turn) error {
			v := view{t.Iteration(), len(t.Messages()), len(t.Pending()), "", t.ContextPercent()}
			if p := t.PendingTool(); p != nil {
				v.tool = p.Name + " " + p.ID + " " + p.Arguments
			}
			seen[name] = append(seen[name], v)
			return nil
		}
	}
	for _, name := range append(hooks, "before_each_tool") {
		watching = append(watching, handlerFor(name, look(name)))
	}
	watching = append(watching, hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		require.Equal(t, c.ID, c.PendingTool().ID)
		require.Equal(t, "A tool of the test.", c.Description)
		if c.ID == "2" {
			return errors.New("no")
		}
		return nil
	}))
	asking := toolCallsReply("echo", "echo")
	asking.Usage = execution.Usage{InputTokens: 32_000}
	w := runWatchedTurn(t, agent.Config{Model: scripted.New(asking, scripted.Say("done")), Tools: newWatchedTools(t, nil), Handlers: watching},
		agent.Invocation{}, nil)
	require.NoError(t, w.err)

	require.Equal(t, map[string][]view{
		"before_agent":     {{0, 1, 0, "", 0}},
		"after_user_input": {{0, 1, 0, "", 0}},
		"before_iteration": {{1, 1, 0, "", 0}, {2, 4, 0, "", 25}},
		"before_llm":       {{1, 1, 0, "", 0}, {2, 4, 0, "", 25}},
		"after_llm":        {{1, 1, 0, "", 25}, {2, 4, 0, "", 0}},
		"before_tools":     {{1, 2, 2, "", 25}},
		"before_each_tool": {{1, 2, 2, `echo 1 {"word": "1"}`, 25}, {1, 3, 2, `echo 2 {"word": "2"}`, 25}},
		"on_error":         {{1, 4, 2, "", 25}},
		"after_each_tool":  {{1, 3, 2, "", 25}, {1, 4, 2, "", 25}},
		"after_tools":      {{1, 4, 0, "", 25}},
		"after_iteration":  {{1, 4, 0, "", 25}, {2, 5, 0, "", 0}},
		"after_agent":      {{2, 5, 0, "", 0}},
		"on_complete":      {{2, 5, 0, "", 0}},
	}, seen)
}

// A run ends without an error if its consumer stops reading, even if a handler then continues.
func TestLoop_EndsWithoutConsumerEvenIfAHandlerContinues(t *testing.T) {
	model := scripted.New(scripted.Say("aside"), scripted.Say("never"))
	in := newInput("go", hook.AfterUserInput(func(ctx context.Context, t *hook.Turn) error {
		_, _ = t.Ask(ctx, llm.Request{}) // emits a model call that has no consumer
		return nil
	}))
	for _, err := range (loop.Loop{Model: model}).Run(t.Context(), in) {
		require.NoError(t, err)
		break
	}
	require.Len(t, model.Requests(), 1)
}

// If a handler extends a reply without tool calls, the reply is recorded, so that a successor finds it. Otherwise
// it ends the step and the commit stores it.
func TestRun_RecordsAFinalReplyThatAHandlerExtends(t *testing.T) {
	for name, tc := range map[string]struct {
		heard   int // events before the first one that depends on the reply
		handler hook.Handler
	}{
		"a tool": {3, hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
			if r.Iteration() == 1 {
				r.ToolCalls = []conversation.ToolCall{toolCall("x", "echo", r.Text)}
			}
			return nil
		})},
		"a judge": {2, hook.AfterLLM(func(ctx context.Context, r *hook.LLMReply) error {
			if r.Iteration() > 1 {
				return nil
			}
			verdict, err := r.Ask(ctx, llm.Request{Messages: []conversation.Message{conversation.User("Is it good? " + r.Text)}})
			r.Text += ", " + verdict.Text
			return err
		})},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := tool.NewSet(newWatchedTools(t, nil)...)
			require.NoError(t, err)
			j := &fakeJournal{}
			in := newInput("go", tc.handler)
			in.Journal = j
			model := scripted.New(scripted.Say("first"), scripted.Say("good"))
			_, err = runToEnd(t.Context(), loop.Loop{Model: model, Tools: set}, in, (&killedConsumer{eventsLeft: tc.heard}).emit)
			require.ErrorIs(t, err, errKilled)

			in = newInput("go", tc.handler)
			in.Journal = j
			model = scripted.New(scripted.Say("second"), scripted.Say("never"))
			out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: set}, in, ignoreEvents)
			require.NoError(t, err)
			if name == "a tool" {
				require.Equal(t, "first", out.Messages[1].Text, "the tool had heard the first reply")
			} else {
				require.Equal(t, "first, good", out.Text, "the judge had read the first reply")
			}
		})
	}
}

// The reply that calls an idempotent tool is durable before the tool runs. A successor therefore calls the tool
// with the same arguments.
func TestRun_SyncsAnExtendedReplyBeforeTheTool(t *testing.T) {
	j, w := &fakeJournal{durableOnSync: true}, &toolRuns{}
	in := newInput("go", hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
		r.ToolCalls = []conversation.ToolCall{toolCall("x", "idempotent", r.Text)}
		return nil
	}))
	in.Journal = j
	_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(scripted.Say("first")), Tools: w.tools(t)}, in, (&killedConsumer{eventsLeft: 2}).emit)
	require.ErrorIs(t, err, errKilled)
	require.Len(t, j.durable, 1)
	require.Equal(t, "first", j.durable[0].Reply.Text)
}
