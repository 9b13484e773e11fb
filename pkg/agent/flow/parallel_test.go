package flow_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// rememberingAgent returns an agent that waits for a gate and then sets keys of the state. It answers with the
// state that it read before.
func rememberingAgent(t *testing.T, name string, gate <-chan struct{}, set map[string]string) *agent.Agent {
	t.Helper()
	return build(t, agent.Config{Name: name, Model: scripted.New(scripted.Reply{Deltas: []string{name + " says."}, Wait: gate}), Handlers: []hook.Handler{
		hook.AfterUserInput(func(ctx context.Context, turn *hook.Turn) error {
			var seen string
			if err := turn.Memory().Read(ctx, "shared", &seen); err != nil {
				return err
			}
			if seen != "before" {
				return errors.New(name + " saw " + seen)
			}
			for key, value := range set {
				if err := turn.Memory().Set(key, value); err != nil {
					return err
				}
			}
			return nil
		}),
	}})
}

// Req: AD-16, AD-28
func TestParallel_RunsEachChildInABranchOfItsOwn(t *testing.T) {
	defer goleak.VerifyNone(t)
	gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
	left := rememberingAgent(t, "left", gates[0], map[string]string{"shared": "left", "left": "1", "temp:left": "1"})
	right := rememberingAgent(t, "right", gates[1], map[string]string{"shared": "right"})
	both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, left, right))
	after := build(t, agent.Config{Name: "after", Model: scripted.New(scripted.Say("Done.")), Instructions: "{shared} {left} {temp:left}"})
	first := build(t, agent.Config{Name: "first", Model: scripted.New(scripted.Say("before")), OutputKey: "shared"})
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, first, both, after))

	close(gates[1]) // the second child ends first
	var order, branches []string
	var prior string
	done, err := team.Execute(t.Context(), agent.Invocation{Step: questionStep("hi")}, func(e event.Event) error {
		if e.Author == "right" && e.Kind() == "message" {
			close(gates[0])
		}
		if p, ok := e.Payload.(event.TextDelta); ok {
			order, branches = append(order, p.Text), append(branches, e.Branch)
		}
		if p, ok := e.Payload.(event.MessageAppended); ok && e.Author == "after" {
			prior = p.Message.Text
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"before", "right says.", "left says.", "Done."}, order)
	require.Equal(t, []string{"team.first", "team.both.right", "team.both.left", "team.after"}, branches)
	require.Equal(t, "Done.", prior)
	require.JSONEq(t, `"right"`, string(done.State["shared"]), "the later child decides, whichever ended first")
	require.JSONEq(t, `"1"`, string(done.State["left"]))
	require.NotContains(t, done.State, "temp:left")
	require.Equal(t, 4, done.Result.Iterations)
	require.Equal(t, 4, done.Result.Usage.ModelCalls)
}

func TestParallel_AnswersWithTheTextOfEachChild(t *testing.T) {
	left, _ := sayingAgent(t, "left", "One.")
	middle := build(t, agent.Config{Name: "middle", Model: scripted.New(), Handlers: []hook.Handler{
		hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) { turn.End(); return "", nil }),
	}})
	right, _ := sayingAgent(t, "right", "Two.")
	both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, left, middle, right))
	_, done, err := runAndDescribe(t.Context(), both, agent.Invocation{Step: questionStep("hi")})
	require.NoError(t, err)
	require.Equal(t, "left:\nOne.\n\nright:\nTwo.", done.Result.Text)
	require.Equal(t, event.Natural, done.Reason)
	require.Equal(t, execution.Usage{ModelCalls: 2, OutputTokens: 20}, done.Result.Usage)
}

// yieldingAgent returns an agent whose function emits numbered thoughts, and records when each was taken.
func yieldingAgent(t *testing.T, name string, many int, seen *lineLog) *agent.Agent {
	t.Helper()
	return build(t, agent.Config{Name: name, Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			defer seen.add("%s ended", name)
			for n := range many {
				if !yield(event.Event{Payload: event.Thinking{Topic: event.Plan, Text: fmt.Sprint(n)}}, nil) {
					return
				}
				seen.add("%s continues after %d", name, n)
			}
			yield(event.Event{Payload: event.Message{Text: name}}, nil)
		}
	}})
}

// Req: AD-28
func TestParallel_ChildWaitsUntilItsEventIsTaken(t *testing.T) {
	var seen lineLog
	both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, yieldingAgent(t, "left", 20, &seen), yieldingAgent(t, "right", 20, &seen)))
	next := map[string]int{}
	_, err := both.Execute(t.Context(), agent.Invocation{Step: questionStep("hi")}, func(e event.Event) error {
		if p, ok := e.Payload.(event.Thinking); ok {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			require.NotContains(t, seen.lines, fmt.Sprintf("%s continues after %s", e.Author, p.Text))
			require.Equal(t, fmt.Sprint(next[e.Author]), p.Text)
			next[e.Author]++
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"left": 20, "right": 20}, next)
}

// Req: AD-10, AD-28
func TestParallel_EndsAllWhenOneFailsOrTheReaderStops(t *testing.T) {
	defer goleak.VerifyNone(t)
	broken := failure.New(failure.ResourceAPI, "test", "down")
	waits := func(name string) *agent.Agent {
		return build(t, agent.Config{Name: name, Model: scripted.New(
			scripted.Reply{Deltas: []string{name}, ToolCalls: []conversation.ToolCall{{Name: "nothing"}}, Usage: execution.Usage{InputTokens: 1}},
			scripted.Reply{Wait: make(chan struct{})},
		)})
	}
	for name, bad := range map[string]func(started <-chan struct{}) agent.Config{
		"an error": func(started <-chan struct{}) agent.Config {
			return agent.Config{Model: scripted.New(scripted.Reply{Wait: started, Err: broken})}
		},
		"a panic": func(started <-chan struct{}) agent.Config {
			return agent.Config{Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
				return func(func(event.Event, error) bool) { <-started; panic("oh") }
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			started := make(chan struct{})
			config := bad(started)
			config.Name = "bad"
			both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, waits("left"), waits("right"), build(t, config)))
			rounds := 0
			done, err := both.Execute(t.Context(), agent.Invocation{Step: questionStep("hi")}, func(e event.Event) error {
				if e.Kind() == "tool_execution" {
					if rounds++; rounds == 2 {
						close(started)
					}
				}
				return nil
			})
			require.True(t, failure.Is(err, failure.ResourceAPI, failure.AgentLogic), "%v", err)
			require.Equal(t, event.Failed, done.Reason)
			require.EqualValues(t, 2, done.Result.Usage.InputTokens, "with the cancelled children")
		})
	}

	t.Run("the reader stops", func(t *testing.T) {
		both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, waits("left"), waits("right")))
		for e, err := range both.Run(t.Context(), agent.Invocation{Step: questionStep("hi")}) {
			require.NoError(t, err)
			if e.Kind() == "text_delta" {
				break
			}
		}
	})
	t.Run("the reader panics", func(t *testing.T) {
		both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, waits("left"), waits("right")))
		require.PanicsWithValue(t, "mine", func() {
			for e, err := range both.Run(t.Context(), agent.Invocation{Step: questionStep("hi")}) {
				if err == nil && e.Kind() == "text_delta" {
					panic("mine")
				}
			}
		})
	})
	t.Run("its context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, waits("left"), waits("right")))
		_, err := both.Execute(ctx, agent.Invocation{Step: questionStep("hi")}, func(e event.Event) error {
			if e.Kind() == "text_delta" {
				cancel()
			}
			return nil
		})
		require.True(t, failure.Is(err, failure.UserCancelled), "%v", err)
	})
}

func TestParallel_StopsAllWhenOneIsStopped(t *testing.T) {
	defer goleak.VerifyNone(t)
	left := build(t, agent.Config{Name: "left", Model: scripted.New(), Handlers: []hook.Handler{
		hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error { turn.Stop("enough"); return nil }),
	}})
	right := build(t, agent.Config{Name: "right", Model: scripted.New(scripted.Reply{Wait: make(chan struct{})})})
	both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, left, right))
	_, done, err := runAndDescribe(t.Context(), both, agent.Invocation{Step: questionStep("hi")})
	require.NoError(t, err)
	require.Equal(t, event.Stopped, done.Reason)
	require.Equal(t, "left:\nThe turn was stopped: enough\n\nright:\nThe turn was stopped.", done.Result.Text)
}

func TestParallel_PassesOnTheQuestionOfAChild(t *testing.T) {
	left := build(t, agent.Config{Name: "left", Model: scripted.New(scripted.Say("Which one?")), AsksUser: true})
	right, _ := sayingAgent(t, "right", "Two.")
	both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, left, right))
	after, never := sayingAgent(t, "after")
	team := mustBuildFlow(t)(flow.Sequence(agent.Config{Name: "team"}, both, after))
	_, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("it")})
	require.NoError(t, err)
	require.True(t, done.Result.InputRequired)
	require.True(t, strings.HasPrefix(done.Result.Text, "left:\nWhich one?"), done.Result.Text)
	require.Empty(t, never.Requests())
}

// Event numbers are unique within the invocation, whichever child emits the event.
func TestParallel_EventNumbersAreUnique(t *testing.T) {
	var seen lineLog
	both := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "both"}, yieldingAgent(t, "left", 50, &seen), yieldingAgent(t, "right", 50, &seen)))
	ids := map[int]bool{}
	for e, err := range both.Run(t.Context(), agent.Invocation{Step: questionStep("hi")}) {
		require.NoError(t, err)
		require.False(t, ids[e.Sequence], "%d", e.Sequence)
		ids[e.Sequence] = true
	}
	require.Greater(t, len(ids), 100)
}
