package loop_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A turn can be stopped at every point, by its signal or by a handler. The reply in progress is dropped, and
// completed work stays. Every call has a result, and no further tool runs. OnStopSignal runs once, unless the turn
// already has its final reply.
// Req: CO-40, CO-63
func TestTurn_CanBeStoppedAtEveryPoint(t *testing.T) {
	three := toolCallsReply("echo", "echo", "echo")
	firstOnly := logAsk + toolLog(1, event.ToolSuccess) + skippedLog(2, 3) + logStop
	for name, tc := range map[string]struct {
		replies []scripted.Reply
		on      func(stop func()) hook.Handler // stops there
		want    string
	}{
		"before the first iteration": {
			on:   func(stop func()) hook.Handler { return hook.AfterUserInput(stopInTurn(stop)) },
			want: "on_stop_signal >answer:stopped >turn_result:stopped",
		},
		"before an iteration": {
			on:   func(stop func()) hook.Handler { return hook.BeforeIteration(stopInTurn(stop)) },
			want: "before_iteration before_llm " + logStop,
		},
		"before the model": {
			on: func(stop func()) hook.Handler {
				return hook.BeforeLLM(func(context.Context, *hook.LLMRequest) error { stop(); return nil })
			},
			want: "before_iteration before_llm " + logStop,
		},
		"after a reply with tool calls": {
			replies: []scripted.Reply{three},
			on: func(stop func()) hook.Handler {
				return hook.AfterLLM(func(context.Context, *hook.LLMReply) error { stop(); return nil })
			},
			want: logAsk + skippedLog(1, 2, 3) + logStop,
		},
		"after the final reply": {
			replies: []scripted.Reply{scripted.Say("hello")},
			on: func(stop func()) hook.Handler {
				return hook.AfterLLM(func(context.Context, *hook.LLMReply) error { stop(); return nil })
			},
			want: logSay + logAnswer, // completed work is kept
		},
		"before the tools": {
			replies: []scripted.Reply{three},
			on: func(stop func()) hook.Handler {
				return hook.BeforeTools(func(context.Context, *hook.Round) error { stop(); return nil })
			},
			want: logAsk + skippedLog(1, 2, 3) + logStop,
		},
		"before a tool": {
			replies: []scripted.Reply{three},
			on: func(stop func()) hook.Handler {
				return hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
					if c.ID == "2" {
						stop()
					}
					return nil
				})
			},
			want: logAsk + toolLog(1, event.ToolSuccess) + "before_each_tool:2 " + skippedLog(2, 3) + logStop,
		},
		"after a tool": {
			replies: []scripted.Reply{three},
			on: func(stop func()) hook.Handler {
				return hook.AfterEachTool(func(context.Context, *hook.Call) error { stop(); return nil })
			},
			want: firstOnly,
		},
		"after the last tool": {
			replies: []scripted.Reply{toolCallsReply("echo")},
			on: func(stop func()) hook.Handler {
				return hook.AfterEachTool(func(context.Context, *hook.Call) error { stop(); return nil })
			},
			want: logAsk + toolLog(1, event.ToolSuccess) + logStop,
		},
		"after the tools": {
			replies: []scripted.Reply{toolCallsReply("echo")},
			on: func(stop func()) hook.Handler {
				return hook.AfterTools(func(context.Context, *hook.Round) error { stop(); return nil })
			},
			want: logAsk + toolLog(1, event.ToolSuccess) + "after_tools " + logStop,
		},
		"in a tool that had failed": {
			replies: []scripted.Reply{toolCallsReply("fail", "echo")},
			on: func(stop func()) hook.Handler {
				return hook.OnError(func(context.Context, *hook.Call) error { stop(); return nil })
			},
			want: logAsk + toolLog(1, event.ToolError) + skippedLog(2) + logStop,
		},
	} {
		t.Run(name, func(t *testing.T) {
			// By the signal.
			signal, stop := context.WithCancel(t.Context())
			defer stop()
			config := agent.Config{
				Model: scripted.New(tc.replies...), Tools: newWatchedTools(t, nil),
				Handlers: []hook.Handler{tc.on(stop)},
			}
			w := runWatchedTurn(t, config, agent.Invocation{Stop: signal}, nil)
			require.NoError(t, w.err)
			require.Equal(t, strings.Fields(logBegin+tc.want), strings.Fields(w.text()))

			// By a handler, which stops the turn itself.
			var now *hook.Turn
			config.Model = scripted.New(tc.replies...)
			config.Handlers = []hook.Handler{
				hook.BeforeAgent(func(_ context.Context, t *hook.Turn) (string, error) { now = t; return "", nil }),
				tc.on(func() { now.Stop("enough") }),
			}
			w = runWatchedTurn(t, config, agent.Invocation{}, nil)
			require.NoError(t, w.err)
			require.Equal(t, strings.Fields(logBegin+tc.want), strings.Fields(w.text()))
			if w.result.Reason == event.Stopped {
				require.Equal(t, "The turn was stopped: enough", w.result.Result.Text)
			}
		})
	}
}

func stopInTurn(stop func()) func(context.Context, *hook.Turn) error {
	return func(context.Context, *hook.Turn) error { stop(); return nil }
}

// Req: CO-63
func TestTurn_InterruptsARunningModelAndTool(t *testing.T) {
	for name, tc := range map[string]struct {
		reply scripted.Reply
		want  string
	}{
		"a model that thinks":     {scripted.Reply{Wait: make(chan struct{})}, "before_iteration before_llm " + logStop},
		"model that streams text": {scripted.Reply{Deltas: []string{"stop", "never"}}, "before_iteration before_llm >text_delta " + logStop},
		"a tool that can be stopped": {toolCallsReply("echo", "stop", "echo"), logAsk + toolLog(1, event.ToolSuccess) + toolLog(2,
			event.ToolInterrupted) + skippedLog(3) + logStop},
		"a tool that ends on its way":  {toolCallsReply("late", "echo"), logAsk + toolLog(1, event.ToolSuccess) + skippedLog(2) + logStop},
		"no tool, and the last answer": {scripted.Say("hello"), logSay + logAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			signal, stop := context.WithCancel(t.Context())
			defer stop()
			model := llm.Model(scripted.New(tc.reply))
			if tc.reply.Wait != nil {
				model = stoppingModel{scripted.New(tc.reply), stop}
			}
			w := runWatchedTurn(t, agent.Config{Model: model, Tools: newWatchedTools(t, stop)}, agent.Invocation{Stop: signal}, func(token string) bool {
				if token == ">text_delta" && name == "model that streams text" || token == ">llm_call" && name == "no tool, and the last answer" {
					stop()
				}
				return false
			})
			require.NoError(t, w.err)
			require.Equal(t, strings.Fields(logBegin+tc.want), strings.Fields(w.text()))
			if w.result.Reason == event.Stopped {
				require.NotContains(t, w.result.Result.Text, "never")
				require.Equal(t, 1, w.result.Result.Usage.ModelCalls, "what was asked was consumed")
			}
		})
	}
}

// stoppingModel is a model that requests a stop as soon as it is asked.
type stoppingModel struct {
	*scripted.Model
	stop func()
}

func (m stoppingModel) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	m.stop()
	return m.Model.Generate(ctx, req)
}

// Req: CO-63
func TestTurn_StopsInItsLastIteration(t *testing.T) {
	w := runWatchedTurn(t, agent.Config{
		Model: scripted.New(toolCallsReply("echo", "echo")), Tools: newWatchedTools(t, nil), MaxIterations: 1,
		Handlers: []hook.Handler{hook.AfterEachTool(func(_ context.Context, c *hook.Call) error { c.Stop("enough"); return nil })},
	}, agent.Invocation{}, nil)
	require.NoError(t, w.err)
	require.Equal(t, strings.Fields(logBegin+logAsk+toolLog(1, event.ToolSuccess)+skippedLog(2)+logStop), strings.Fields(w.text()))
}

// A stop interrupts a handler that asks the model. This does not count as a failure of the handler, and the round
// is closed.
// Req: CO-63
func TestTurn_InterruptsASideCall(t *testing.T) {
	ask := func(ctx context.Context, t *hook.Turn) error {
		_, err := t.Ask(ctx, llm.Request{Messages: []conversation.Message{conversation.User("well?")}})
		return err
	}
	wait := scripted.Reply{Wait: make(chan struct{})}
	for name, tc := range map[string]struct {
		replies []scripted.Reply
		handler hook.Handler
		want    string
	}{
		"at its beginning": {
			[]scripted.Reply{wait},
			hook.AfterUserInput(ask),
			"on_stop_signal >answer:stopped >turn_result:stopped",
		},
		"before the tools": {
			[]scripted.Reply{toolCallsReply("echo", "echo"), wait},
			hook.BeforeTools(func(ctx context.Context, r *hook.Round) error { return ask(ctx, r.Turn) }),
			logAsk + skippedLog(1, 2) + logStop,
		},
		"before a tool": {
			[]scripted.Reply{toolCallsReply("echo", "echo"), wait},
			hook.BeforeEachTool(func(ctx context.Context, c *hook.Call) error { return ask(ctx, c.Turn) }),
			logAsk + "before_each_tool:1 " + skippedLog(1, 2) + logStop,
		},
		"after a tool": {
			[]scripted.Reply{toolCallsReply("echo", "echo"), wait},
			hook.AfterEachTool(func(ctx context.Context, c *hook.Call) error { return ask(ctx, c.Turn) }),
			logAsk + toolLog(1, event.ToolSuccess) + skippedLog(2) + logStop,
		},
		"after the tools": {
			[]scripted.Reply{toolCallsReply("echo"), wait},
			hook.AfterTools(func(ctx context.Context, r *hook.Round) error { return ask(ctx, r.Turn) }),
			logAsk + toolLog(1, event.ToolSuccess) + "after_tools " + logStop,
		},
		"after an iteration": {
			[]scripted.Reply{toolCallsReply("echo"), wait},
			hook.AfterIteration(ask),
			logAsk + toolLog(1, event.ToolSuccess) + "after_tools " + logStop,
		},
	} {
		t.Run(name, func(t *testing.T) {
			signal, stop := context.WithCancel(t.Context())
			defer stop()
			model := &modelStoppedAtLastReply{scripted.New(tc.replies...), len(tc.replies), stop}
			w := runWatchedTurn(t, agent.Config{Model: model, Tools: newWatchedTools(t, nil), Handlers: []hook.Handler{tc.handler}},
				agent.Invocation{Stop: signal}, nil)
			require.NoError(t, w.err)
			require.Equal(t, strings.Fields(logBegin+tc.want), strings.Fields(w.text()))
		})
	}
}

// modelStoppedAtLastReply is a model that requests a stop when it is asked for its last reply.
type modelStoppedAtLastReply struct {
	*scripted.Model
	repliesLeft int
	stop        func()
}

func (m *modelStoppedAtLastReply) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	if m.repliesLeft--; m.repliesLeft == 0 {
		m.stop()
	}
	return m.Model.Generate(ctx, req)
}

// A handler of OnStopSignal may still ask the model. A stop after the answer changes nothing.
// Req: CO-63
func TestTurn_HandlersAskTheModelAfterAStop(t *testing.T) {
	signal, stop := context.WithCancel(t.Context())
	defer stop()
	var summary string
	ask := func(ctx context.Context, t *hook.Turn) error {
		said, err := t.Ask(ctx, llm.Request{})
		summary = said.Text
		return err
	}
	w := runWatchedTurn(t, agent.Config{
		Model: scripted.New(scripted.Say("as far as I came")), Tools: newWatchedTools(t, nil),
		Handlers: []hook.Handler{hook.AfterUserInput(stopInTurn(stop)), hook.OnStopSignal(ask)},
	}, agent.Invocation{Stop: signal}, nil)
	require.NoError(t, w.err)
	require.Equal(t, "as far as I came", summary)
	require.Equal(t, 1, strings.Count(w.text(), "on_stop_signal"))

	signal, stop = context.WithCancel(t.Context())
	defer stop()
	w = runWatchedTurn(t, agent.Config{
		Model: scripted.New(scripted.Say("the answer"), scripted.Say("judged")), Tools: newWatchedTools(t, nil),
		Handlers: []hook.Handler{hook.OnComplete(func(ctx context.Context, c *hook.Completion) error {
			stop()
			return ask(ctx, c.Turn)
		})},
	}, agent.Invocation{Stop: signal}, nil)
	require.NoError(t, w.err)
	require.Equal(t, "the answer", w.result.Result.Text)
	require.Equal(t, "judged", summary)
}

// Req: CO-63
func TestTurn_StopDoesNotCarryOverIntoTheNextTurn(t *testing.T) {
	first := true
	model := scripted.New(scripted.Say("hello"))
	a, err := agent.New(agent.Config{Name: "test", Model: model, Handlers: []hook.Handler{
		hook.AfterUserInput(func(_ context.Context, t *hook.Turn) error {
			if first {
				t.Stop("enough")
			}
			first = false
			return nil
		}),
	}})
	require.NoError(t, err)
	for _, want := range []event.Reason{event.Stopped, event.Natural} {
		done, err := a.Execute(t.Context(), agent.Invocation{}, func(event.Event) error { return nil })
		require.NoError(t, err)
		require.Equal(t, want, done.Reason)
	}
}

// If the end of the step interrupts a tool, the journal gets no result of it. In a successor a tool that only
// reads runs again, and a tool that may run only once is in doubt.
func TestRun_RecordsNoResultOfAnInterruptedTool(t *testing.T) {
	for effect, want := range map[string]event.ToolStatus{"read": event.ToolSuccess, "at_most_once": event.ToolUnknownOutcome} {
		t.Run(effect, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			j, runs := &fakeJournal{}, 0
			slow, err := tool.Func(effect, "Waits at first.", func(ctx context.Context, _ wordArgs) (string, error) {
				if runs++; runs == 1 {
					cancel()
					<-ctx.Done()
					return "", errors.Join(errors.New("cut off"), ctx.Err())
				}
				return "did it", nil
			})
			require.NoError(t, err)
			set, err := tool.NewSet(tool.WithEffect(execution.Effect(effect), slow))
			require.NoError(t, err)
			in := newInput("go")
			in.Journal = j
			_, err = runToEnd(ctx, loop.Loop{Model: scripted.New(toolCallsReply(effect)), Tools: set}, in, ignoreEvents)
			require.Error(t, err)

			in = newInput("go")
			in.Journal = j
			out, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(scripted.Say("done")), Tools: set}, in, ignoreEvents)
			require.NoError(t, err)
			require.Equal(t, want, out.Calls[0].Status)
		})
	}
}
