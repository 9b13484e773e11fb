package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// runHooks is a plugin that logs the handlers around a run.
func runHooks(log *[]string, name string) hook.Plugin {
	note := func(what string) { *log = append(*log, name+" "+what) }
	noText := func(what string) func(context.Context, *hook.Turn) (string, error) {
		return func(context.Context, *hook.Turn) (string, error) { note(what); return "", nil }
	}
	return hook.Plugin{Name: name, Handlers: []hook.Handler{
		hook.OnUserMessage(noText("user")), hook.BeforeRun(noText("before run")), hook.BeforeAgent(noText("before agent")), hook.AfterAgent(noText("after agent")),
		hook.AfterRun(func(_ context.Context, done *hook.Completion) error {
			note(fmt.Sprintf("after run %s %q %v", done.Reason, done.Result, failure.ModeOf(done.Err)))
			return nil
		}),
	}}
}

// Req: AD-25, AD-27
func TestRunHooks_OrderAndOncePerRun(t *testing.T) {
	var log []string
	child := build(t, agent.Config{Name: "child", Model: scripted.New(scripted.Say("Hi.")), Plugins: []hook.Plugin{runHooks(&log, "inner")}})
	team, err := flow.Sequence(agent.Config{Name: "team", Plugins: []hook.Plugin{runHooks(&log, "one"), runHooks(&log, "two")}}, child)
	require.NoError(t, err)
	agenttest.Run(t, team, "hello")
	require.Equal(t, []string{
		"one user", "two user", "one before run", "two before run", "one before agent", "two before agent",
		"inner before agent", "inner after agent", // an agent inside of a run has no run of its own
		"one after agent", "two after agent", `one after run natural "Hi." `, `two after run natural "Hi." `,
	}, log)
}

// Req: AD-25, AD-27
func TestOnUserMessage_FirstTextIsWhatAllAgentsOfTheRunRead(t *testing.T) {
	model := scripted.New(scripted.Say("Hi."), scripted.Say("Ho."))
	child := build(t, agent.Config{Name: "child", Model: model})
	replace := func(text string) hook.Handler {
		return hook.OnUserMessage(func(_ context.Context, turn *hook.Turn) (string, error) {
			require.Equal(t, "hello", turn.Info().Prompt)
			return text, nil
		})
	}
	team, err := flow.Sequence(agent.Config{Name: "team", Handlers: []hook.Handler{replace(""), replace("HELLO"), replace("never")}}, child)
	require.NoError(t, err)
	s := agenttest.NewSession(t, team)
	turn := s.Say("hello")
	require.Equal(t, "HELLO", model.Requests()[0].Messages[0].Text)
	require.Equal(t, "hello", s.History()[0].Text, "the session keeps what the user said")
	require.Equal(t, event.UserInput{Turn: 1, Prompt: "hello"}, turn.Events[0].Payload)

	failed := agenttest.NewSession(t, build(t, agent.Config{Model: scripted.New(), Handlers: []hook.Handler{
		replace(strings.Repeat("x", conversation.MaxMessageBytes+1)),
	}})).Try("hello")
	require.True(t, failure.Is(failed.Err, failure.AgentLogic), "%v", failed.Err)
	require.ErrorContains(t, failed.Err, "at most 262144 are allowed")
}

// Req: AD-25, AD-27
func TestBeforeRun_FirstTextEndsTheRun(t *testing.T) {
	var log []string
	model := scripted.New()
	answer := func(text string) hook.Handler {
		return hook.BeforeRun(func(_ context.Context, turn *hook.Turn) (string, error) {
			log = append(log, "answer "+text)
			return text, turn.Memory().Set("seen", text)
		})
	}
	turn := agenttest.Run(t, build(t, agent.Config{Model: model, Plugins: []hook.Plugin{
		{Name: "first", Handlers: []hook.Handler{answer("No."), answer("never")}}, runHooks(&log, "log"),
	}}), "hello")
	require.Equal(t, []string{"log user", "answer No.", `log after run natural "No." `}, log)
	require.Equal(t, "No.", turn.Text)
	require.Equal(t, map[string]any{"seen": "No."}, turn.State)
	require.Empty(t, model.Requests())
}

// Req: AD-25, AD-27
func TestAfterRun_RunsHoweverTheRunEnds(t *testing.T) {
	down := failure.New(failure.ResourceAPI, "test", "down")
	for want, c := range map[string]struct {
		model    *scripted.Model
		handlers []hook.Handler
	}{
		`natural "Hi." `:        {model: scripted.New(scripted.Say("Hi."))},
		`error "" resource_api`: {model: scripted.New(scripted.Fail(down))},
		`error "" policy_security`: {scripted.New(), []hook.Handler{hook.BeforeRun(func(context.Context, *hook.Turn) (string, error) {
			return "", failure.New(failure.PolicySecurity, "test", "no")
		})}},
		`stopped "" `: {scripted.New(), []hook.Handler{hook.OnUserMessage(func(_ context.Context, turn *hook.Turn) (string, error) { turn.End(); return "", nil })}},
	} {
		var log []string
		agenttest.NewSession(t, build(t, agent.Config{Model: c.model, Handlers: c.handlers, Plugins: []hook.Plugin{runHooks(&log, "log")}})).Try("hello")
		require.Equal(t, "log after run "+want, log[len(log)-1])
	}

	// It runs in a run that took too long, with a context of its own. Its error replaces no earlier one.
	var left time.Duration
	slow := build(t, agent.Config{Timeout: time.Millisecond, Model: scripted.New(scripted.Reply{Wait: make(chan struct{})}), Handlers: []hook.Handler{
		hook.AfterRun(func(ctx context.Context, done *hook.Completion) error {
			require.NoError(t, ctx.Err())
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return errors.New("never seen")
		}),
	}})
	turn := agenttest.NewSession(t, slow).Try("hello")
	require.True(t, failure.Is(turn.Err, failure.AgentTimeout), "%v", turn.Err)
	require.LessOrEqual(t, left, time.Second)

	// Its error fails a run that had an answer. What it changes is stored otherwise.
	for text, failed := range map[string]error{"": nil, "hook.after_run: resource_api: down": down} {
		turn = agenttest.NewSession(t, build(t, agent.Config{Model: scripted.New(scripted.Say("Hi.")), Handlers: []hook.Handler{
			hook.AfterRun(func(_ context.Context, done *hook.Completion) error {
				done.Warn("LAST", "it is over")
				return errors.Join(done.Memory().Set("ended", true), failed)
			}),
		}})).Try("hello")
		require.Equal(t, "LAST", turn.Warnings[0].Reason)
		if failed == nil {
			require.NoError(t, turn.Err)
			require.Equal(t, map[string]any{"ended": true}, turn.State)
			continue
		}
		require.ErrorContains(t, turn.Err, text)
		require.Empty(t, turn.State)
	}
}

// masking returns a handler that replaces a text in events.
func masking(log *[]string, name, from, to string) hook.Handler {
	return hook.OnEvent(func(_ context.Context, turn *hook.Turn, e event.Event) (event.Payload, error) {
		*log = append(*log, name+" "+e.Kind())
		turn.Think(event.Reflection, "I saw "+e.Kind())
		p, ok := e.Payload.(event.Answer)
		if !ok || !strings.Contains(p.Text, from) {
			return nil, nil
		}
		p.Text, p.Reason = strings.ReplaceAll(p.Text, from, to), event.Stopped
		return p, nil
	})
}

// Req: AD-27
func TestOnEvent_FirstReplacementWins(t *testing.T) {
	var log []string
	turn := agenttest.Run(t, build(t, agent.Config{Model: scripted.New(scripted.Say("It is 42.")), Handlers: []hook.Handler{
		masking(&log, "one", "nothing", ""), masking(&log, "two", "42", "[number]"), masking(&log, "three", "[number]", "never"),
	}}), "hello")
	require.Equal(t, []string{
		"one user_input", "two user_input", "three user_input", "one text_delta", "two text_delta", "three text_delta",
		"one llm_call", "two llm_call", "three llm_call", "one assistant", "two assistant",
	}, log)
	require.Equal(t, "It is [number].", turn.Text)
	require.Equal(t, event.Natural, turn.Result.Reason, "only texts are replaced")
	last := 0
	for _, e := range turn.Events { // what the handlers emit follows the event, and does not reach them
		require.Greater(t, e.Sequence, last)
		last = e.Sequence
	}
	require.Equal(t, []string{
		"user_input", "thinking", "thinking", "thinking", "thinking", "thinking", "thinking",
		"llm_call", "thinking", "thinking", "thinking", "assistant", "thinking", "thinking", "turn_result",
	}, turn.Kinds())
}

// Req: AD-27
func TestOnEvent_ErrorEndsTheTurnWithItsLastEvent(t *testing.T) {
	for name, c := range map[string]struct {
		of   string
		by   event.Payload
		err  error
		want string
	}{
		"an error":           {"llm_call", nil, failure.New(failure.PolicySecurity, "test", "That is secret."), "That is secret."},
		"a panic":            {"user_input", nil, nil, "the handler on_event failed and gave no reason"},
		"another kind":       {"llm_call", event.Warning{}, nil, "an event of kind llm_call cannot be replaced by one of kind warning"},
		"a fact":             {"llm_call", event.ModelCall{}, nil, "an event of kind llm_call has no text that a handler may replace"},
		"more data":          {"custom", event.Custom{Name: "a", Data: []byte(`[1,2]`)}, nil, "its data has 3 bytes and may not get more"},
		"data that is wrong": {"custom", event.Custom{Name: "a", Data: []byte(`[`)}, nil, "its data is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			var after []error
			turn := agenttest.NewSession(t, build(t, agent.Config{Model: scripted.New(scripted.Say("Hi.")), Handlers: []hook.Handler{
				hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error { return turn.Emit("a", []int{1}) }),
				hook.OnEvent(func(_ context.Context, _ *hook.Turn, e event.Event) (event.Payload, error) {
					if e.Kind() != c.of {
						return nil, nil
					}
					if name == "a panic" {
						panic("oh")
					}
					return c.by, c.err
				}),
				hook.AfterRun(func(_ context.Context, done *hook.Completion) error { after = append(after, done.Err); return nil }),
			}})).Try("hello")
			require.ErrorContains(t, turn.Err, c.want)
			require.Equal(t, event.Failed, turn.Result.Reason)
			require.Len(t, after, 1)
			require.ErrorContains(t, after[0], c.want)
			kinds := turn.Kinds()
			require.Equal(t, []string{"error", "turn_result"}, kinds[len(kinds)-2:])
			require.NotContains(t, kinds, c.of, "the event is not emitted")
		})
	}
}
