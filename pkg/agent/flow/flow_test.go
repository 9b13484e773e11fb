package flow_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

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

// sayingAgent returns an agent and its model. The agent replies with the texts in order, each for 10 tokens.
func sayingAgent(t *testing.T, name string, texts ...string) (*agent.Agent, *scripted.Model) {
	t.Helper()
	var script []scripted.Reply
	for _, text := range texts {
		script = append(script, scripted.Reply{Deltas: []string{text}, Usage: execution.Usage{OutputTokens: 10}})
	}
	model := scripted.New(script...)
	return build(t, agent.Config{Name: name, Model: model}), model
}

// mustBuildFlow returns a flow and fails the test if its config is invalid.
func mustBuildFlow(t *testing.T) func(*agent.Agent, error) *agent.Agent {
	return func(a *agent.Agent, err error) *agent.Agent {
		t.Helper()
		require.NoError(t, err)
		return a
	}
}

// runAndDescribe runs an agent. It returns the events in the form "author branch kind", the result and the error.
func runAndDescribe(ctx context.Context, a *agent.Agent, inv agent.Invocation) (events []string, done event.TurnResult, err error) {
	for e, failed := range a.Run(ctx, inv) {
		if failed != nil {
			err = failed
			continue
		}
		if result, ok := e.Payload.(event.TurnResult); ok {
			done = result
		}
		if !strings.HasPrefix(e.Kind(), event.InternalPrefix) {
			events = append(events, strings.Join(strings.Fields(e.Author+" "+e.Branch+" "+e.Kind()), " "))
		}
	}
	return events, done, err
}

// Req: AD-9, AD-28
func TestSequence_RunsEachChildOnceInOrder(t *testing.T) {
	finder := build(t, agent.Config{
		Name: "finder", Model: scripted.New(lookupReply("a"), scripted.Reply{Deltas: []string{"I found a."}, Usage: execution.Usage{OutputTokens: 10}}),
		Tools: []tool.Tool{lookup(t)}, OutputKey: "finding",
	})
	model := scripted.New(scripted.Reply{Deltas: []string{"A it is."}, Usage: execution.Usage{OutputTokens: 10}})
	writer := build(t, agent.Config{Name: "writer", Model: model, Instructions: "Write about {finding}"})
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, finder, writer))

	events, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("What is there?")})
	require.NoError(t, err)
	require.Equal(t, []string{
		"user user_input",
		"finder team.finder llm_call", "finder team.finder tool_call", "finder team.finder tool_execution",
		"finder team.finder text_delta", "finder team.finder llm_call", "finder team.finder assistant", "finder team.finder message",
		"writer team.writer text_delta", "writer team.writer llm_call", "writer team.writer assistant",
		"team turn_result",
	}, events)
	require.Equal(t, event.Natural, done.Reason)
	require.Empty(t, cmp.Diff(execution.Result{
		Step: 2, Agent: "team", Text: "A it is.", Observations: []string{"Used tool: lookup\nfound a"}, ToolsCalled: []string{"lookup"},
		Iterations: 3, Usage: execution.Usage{ModelCalls: 3, OutputTokens: 20}, Confidence: done.Result.Confidence,
	}, done.Result))
	require.InDelta(t, 0.6, *done.Result.Confidence, 0, "the confidence of the last child, which has one observation")
	require.Equal(t, []conversation.Message{conversation.Assistant("team", "A it is.")}, done.Messages)
	require.JSONEq(t, `"I found a."`, string(done.State["finding"]))

	asked := model.Requests()[0]
	require.Equal(t, "Write about I found a.", asked.System, "the state that the child before changed")
	require.Equal(t, conversation.User("What is there?"), asked.Messages[0])
	require.Contains(t, asked.Messages[1].Text, "What finder said:\n\nI found a.")
}

// Req: AD-28
func TestSequence_StopsAtAnError(t *testing.T) {
	first, _ := sayingAgent(t, "first", "One.")
	broken := failure.New(failure.ResourceAPI, "test", "down")
	second := build(t, agent.Config{Name: "second", Model: scripted.New(scripted.Reply{Usage: execution.Usage{InputTokens: 5}, Err: broken})})
	third, never := sayingAgent(t, "third")
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, first, second, third))
	events, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("hi")})
	require.ErrorIs(t, err, broken)
	require.Empty(t, never.Requests())
	require.Equal(t, event.Failed, done.Reason)
	require.Equal(t, string(failure.ResourceAPI), done.ErrorType)
	require.Equal(t, execution.Usage{ModelCalls: 2, InputTokens: 5, OutputTokens: 10}, done.Result.Usage, "with the child that failed")
	require.Equal(t, 1, strings.Count(strings.Join(events, " "), "turn_result"))
}

func TestSequence_ContinuesAfterAChildThatDegrades(t *testing.T) {
	first := build(t, agent.Config{Name: "first", Model: scripted.New(), OnFailure: agent.Degrade})
	second, _ := sayingAgent(t, "second", "Two.")
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, first, second))
	_, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("hi")})
	require.NoError(t, err)
	require.Equal(t, "Two.", done.Result.Text)
	require.InDelta(t, 0.0, *done.Result.Confidence, 0)
}

func TestSequence_EndsWithAQuestionToTheUser(t *testing.T) {
	first := build(t, agent.Config{Name: "first", Model: scripted.New(scripted.Say("Which one?")), AsksUser: true})
	second, never := sayingAgent(t, "second")
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, first, second))
	_, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("it")})
	require.NoError(t, err)
	require.Empty(t, never.Requests())
	require.Equal(t, event.InputRequired, done.Reason)
	require.True(t, done.Result.InputRequired)
	require.Equal(t, "Which one?", done.Result.Text)
}

func TestSequence_LetsItsLastChildChooseTheRoute(t *testing.T) {
	first, before := sayingAgent(t, "first", "It is about money.")
	second, model := sayingAgent(t, "second", "billing")
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, first, second))
	step := questionStep("hi")
	step.Routes = []string{"billing", "support"}
	_, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: step})
	require.NoError(t, err)
	require.Empty(t, before.Requests()[0].Choices)
	require.Equal(t, step.Routes, model.Requests()[0].Choices)
	require.Equal(t, "billing", done.Result.NextAgent)
	require.Empty(t, done.Result.Text)
}

// Turn.End in a handler ends one agent. Turn.Stop stops all agents of the flow.
func TestSequence_EndEndsOneAgentAndStopEndsAll(t *testing.T) {
	ends := hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) { turn.End(); return "", nil })
	endsLater := hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error { reply.End(); return nil })
	stops := hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error { turn.Stop("enough"); return nil })
	for name, tc := range map[string]struct {
		handler hook.Handler
		reason  event.Reason
		asked   int
	}{
		"ended before it began": {ends, event.Natural, 1},
		"ended in the middle":   {endsLater, event.Natural, 1},
		"stopped":               {stops, event.Stopped, 0},
	} {
		t.Run(name, func(t *testing.T) {
			first := build(t, agent.Config{Name: "first", Model: scripted.New(scripted.Say("One.")), Handlers: []hook.Handler{tc.handler}})
			second, model := sayingAgent(t, "second", "Two.")
			completed := 0
			team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team", Handlers: []hook.Handler{
				hook.OnComplete(func(context.Context, *hook.Completion) error { completed++; return nil }),
			}}, first, second))
			_, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("hi")})
			require.NoError(t, err)
			require.Equal(t, tc.reason, done.Reason)
			require.False(t, done.Ended, "the flow was not")
			require.Len(t, model.Requests(), tc.asked)
			require.Equal(t, tc.asked, completed)
		})
	}
}

// Req: CO-63
func TestSequence_IsStoppedFromOutside(t *testing.T) {
	stop, now := context.WithCancel(t.Context())
	first := build(t, agent.Config{Name: "first", Model: scripted.New(scripted.Say("One.")), Handlers: []hook.Handler{
		hook.OnComplete(func(context.Context, *hook.Completion) error { now(); return nil }),
	}})
	second, never := sayingAgent(t, "second")
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, first, second))
	_, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("hi"), Stop: stop})
	require.NoError(t, err)
	require.Equal(t, event.Stopped, done.Reason)
	require.Equal(t, "The turn was stopped.", done.Result.Text)
	require.Empty(t, never.Requests())
}

func TestSequence_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first := build(t, agent.Config{Name: "first", Model: scripted.New(scripted.Say("One.")), Handlers: []hook.Handler{
		hook.OnComplete(func(context.Context, *hook.Completion) error { cancel(); return nil }),
	}})
	second, never := sayingAgent(t, "second")
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, first, second))
	_, done, err := runAndDescribe(ctx, team, agent.Invocation{Step: questionStep("hi")})
	require.True(t, failure.Is(err, failure.UserCancelled), "%v", err)
	require.Equal(t, event.Interrupted, done.Reason)
	require.Empty(t, never.Requests())
}

// Req: AD-10
func TestSequence_EndsWhenTheReaderStops(t *testing.T) {
	first, _ := sayingAgent(t, "first", "One.")
	second, never := sayingAgent(t, "second")
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, first, second))
	broken := errors.New("the stream is gone")
	_, _, err := execute(t.Context(), team, questionStep("hi"), func(e event.Event) error {
		if e.Kind() == "llm_call" {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	require.Empty(t, never.Requests())
}

// Req: AD-28
func TestRepeat_EndsOnCount(t *testing.T) {
	writer, model := sayingAgent(t, "writer", "Draft 1.", "Draft 2.", "Draft 3.")
	critic, _ := sayingAgent(t, "critic", "Shorter.", "Still shorter.", "Fine.")
	team := mustBuildFlow(t)(flow.Repeat(agent.Config{Name: "team"}, 3, writer, critic))
	_, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("Write.")})
	require.NoError(t, err)
	require.Equal(t, "Fine.", done.Result.Text)
	require.Equal(t, event.Natural, done.Reason)
	require.Equal(t, 6, done.Result.Iterations)
	require.Equal(t, 6, done.Result.Usage.ModelCalls)
	last := model.Requests()[2].Messages
	require.Len(t, last, 2)
	require.Contains(t, last[1].Text, "Still shorter.")
}

// Req: AD-22, AD-28
func TestRepeat_EndsWhenAChildEscalates(t *testing.T) {
	type none struct{}
	enough, err := tool.Func("enough", "Ends it.", func(ctx context.Context, _ none) (string, error) {
		hook.InTool(ctx).Escalate()
		return "ok", nil
	})
	require.NoError(t, err)
	for name, critic := range map[string]agent.Config{
		"a handler": {Model: scripted.New(scripted.Say("Shorter."), scripted.Say("Fine.")), Handlers: []hook.Handler{
			hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error {
				if reply.Text == "Fine." {
					reply.Escalate()
				}
				return nil
			}),
		}},
		"a tool": {
			Model: scripted.New(scripted.Say("Shorter."), scripted.Call(conversation.ToolCall{Name: "enough"}), scripted.Say("Fine.")),
			Tools: []tool.Tool{enough},
		},
		"a function": {Run: func() func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
			round := 0
			return func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
				return func(yield func(event.Event, error) bool) {
					round++
					yield(event.Event{Payload: event.Message{Text: []string{"Shorter.", "Fine."}[round-1], Escalate: round == 2}}, nil)
				}
			}
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			writer, model := sayingAgent(t, "writer", "Draft 1.", "Draft 2.")
			critic.Name = "critic"
			after, never := sayingAgent(t, "after", "Next.")
			// A sequence passes on an escalation of a child and still runs its other children.
			inner := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "inner"}, build(t, critic)))
			rounds := mustBuildFlow(t)(flow.Repeat(agent.Config{Name: "rounds"}, 0, writer, inner, after))
			outer := mustBuildFlow(t)(flow.Repeat(agent.Config{Name: "outer"}, 1, rounds))
			_, done, err := runAndDescribe(t.Context(), outer, agent.Invocation{Step: questionStep("Write.")})
			require.NoError(t, err)
			require.Equal(t, "Fine.", done.Result.Text)
			require.False(t, done.Escalate, "Repeat handled it")
			require.Len(t, model.Requests(), 2)
			require.Len(t, never.Requests(), 1, "only in the round that was not ended early")
		})
	}
}

func TestRepeat_WithoutALimitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	rounds := 0
	child := build(t, agent.Config{Name: "child", Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			if rounds++; rounds == 100 {
				cancel()
			}
			yield(event.Event{Payload: event.Message{Text: "again"}}, nil)
		}
	}})
	team := mustBuildFlow(t)(flow.Repeat(agent.Config{Name: "team"}, 0, child))
	_, _, err := runAndDescribe(ctx, team, agent.Invocation{Step: questionStep("hi")})
	require.True(t, failure.Is(err, failure.UserCancelled), "%v", err)
	require.Equal(t, 100, rounds)
}

// An author's own Run function can run other agents as a flow does.
// Req: AD-9, AD-16
func TestRun_FunctionRunsAgents(t *testing.T) {
	plan, _ := sayingAgent(t, "plan", "big")
	big, _ := sayingAgent(t, "big", "A big answer.")
	small, _ := sayingAgent(t, "small")
	chooser := build(t, agent.Config{Name: "chooser", Agents: []*agent.Agent{plan, big, small}, Run: func(ctx context.Context,
		inv agent.Invocation,
	) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			next := plan
			for next != nil {
				run := next
				next = nil
				for e, err := range run.Run(ctx, inv) {
					if done, ok := e.Payload.(event.TurnResult); ok && run == plan {
						next = map[string]*agent.Agent{"big": big, "small": small}[done.Result.Text]
					}
					if !yield(e, err) || err != nil {
						return
					}
				}
			}
		}
	}})
	events, done, err := runAndDescribe(t.Context(), chooser, agent.Invocation{Step: questionStep("hi")})
	require.NoError(t, err)
	require.Equal(t, []string{
		"user user_input", "plan chooser.plan text_delta", "plan chooser.plan llm_call", "plan chooser.plan assistant",
		"big chooser.big text_delta", "big chooser.big llm_call", "big chooser.big assistant", "chooser turn_result",
	}, events)
	require.Equal(t, "A big answer.", done.Result.Text)
	require.Equal(t, execution.Usage{ModelCalls: 2, OutputTokens: 20}, done.Result.Usage)
}

func TestFlow_ReportsAnInvalidConfig(t *testing.T) {
	child, _ := sayingAgent(t, "child")
	run := func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] { return nil }
	for want, flow := range map[string]func() (*agent.Agent, error){
		"needs one at least": func() (*agent.Agent, error) { return flow.Sequence(agent.Config{Name: "team"}) },
		"leave them out":     func() (*agent.Agent, error) { return flow.Parallel(agent.Config{Name: "team", Run: run}, child) },
		"rounds":             func() (*agent.Agent, error) { return flow.Repeat(agent.Config{Name: "team"}, -1, child) },
		"two are named":      func() (*agent.Agent, error) { return flow.Sequence(agent.Config{Name: "team"}, child, child) },
		"no model of its": func() (*agent.Agent, error) {
			return flow.Parallel(agent.Config{Name: "team", Model: scripted.New()}, child)
		},
	} {
		_, err := flow()
		require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
		require.ErrorContains(t, err, want)
	}
}

// lineLog collects lines from several goroutines.
type lineLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}
