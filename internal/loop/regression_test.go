package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// newToolSet returns a set that contains one tool.
func newToolSet(t *testing.T, name string, fn func(context.Context, wordArgs) (string, error)) *tool.Set {
	t.Helper()
	one, err := tool.Func(name, "A tool of the test.", fn)
	require.NoError(t, err)
	set, err := tool.NewSet(tool.WithEffect(execution.Read, one))
	require.NoError(t, err)
	return set
}

// The journal keeps the mode of a failure, so a handler that depends on the mode decides the same in a replay.
func TestReplay_KeepsTheModeOfAFailure(t *testing.T) {
	j := &fakeJournal{}
	set := newToolSet(t, "down", func(context.Context, wordArgs) (string, error) {
		return "", failure.New(failure.ResourceTool, "test", "it is down")
	})
	in := func() loop.Input {
		in := newInput("go", hook.OnError(func(ctx context.Context, c *hook.Call) error {
			if !failure.Is(c.Err, failure.ResourceTool) {
				return nil
			}
			_, err := c.Ask(ctx, llm.Request{System: "what now?"})
			return err
		}))
		in.Journal = j
		return in
	}
	l := loop.Loop{Tools: set, Model: scripted.New(scripted.Call(toolCall("1", "down", "a")), scripted.Say("ASIDE"), scripted.Fail(errKilled))}
	_, err := runToEnd(t.Context(), l, in(), ignoreEvents)
	require.ErrorIs(t, err, errKilled)
	l.Model = scripted.New(scripted.Say("Final."))
	out, err := runToEnd(t.Context(), l, in(), ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, "Final.", out.Text)
	require.Equal(t, string(failure.ResourceTool), out.Calls[0].ErrorType)
}

// A successor does not mistake the recorded reply of a side call for a reply of the conversation.
func TestReplay_DistinguishesSideCallsFromReplies(t *testing.T) {
	j := &fakeJournal{}
	asks := true
	in := func() loop.Input {
		in := newInput("go", hook.AfterUserInput(func(ctx context.Context, turn *hook.Turn) error {
			if !asks {
				return nil
			}
			_, err := turn.Ask(ctx, llm.Request{System: "plan"})
			return err
		}))
		in.Journal = j
		return in
	}
	_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(scripted.Say("ASIDE"), scripted.Fail(errKilled))}, in(), ignoreEvents)
	require.ErrorIs(t, err, errKilled)
	asks = false
	_, err = runToEnd(t.Context(), loop.Loop{Model: scripted.New(scripted.Say("Final."))}, in(), ignoreEvents)
	require.True(t, failure.Is(err, failure.Nondeterminism), "%v", err)
}

// A model call that failed and after which a handler continued fails again in a successor, under the same number.
func TestReplay_KeepsTheNumberOfAFailedModelCall(t *testing.T) {
	j := &fakeJournal{}
	w := &toolRuns{}
	in := func() loop.Input {
		in := newInput("go", hook.OnLLMError(func(ctx context.Context, f *hook.LLMFailure) error {
			said, err := f.Ask(ctx, llm.Request{System: "shorter"})
			if err == nil {
				f.Respond(said.Text)
			}
			return err
		}), hook.AfterLLM(func(_ context.Context, r *hook.LLMReply) error {
			if r.Text == "shorter" {
				return errKilled
			}
			return nil
		}))
		in.Journal = j
		return in
	}
	l := loop.Loop{Tools: w.tools(t), Model: scripted.New(scripted.Fail(failure.New(failure.ResourceAPI, "test", "too long")), scripted.Say("shorter"))}
	_, err := runToEnd(t.Context(), l, in(), ignoreEvents)
	require.ErrorIs(t, err, errKilled)
	l.Model = scripted.New(scripted.Call(toolCall("1", "read", "a"))) // would be asked if the number were free
	_, err = runToEnd(t.Context(), l, in(), ignoreEvents)
	require.ErrorIs(t, err, errKilled, "the successor goes the same way")
	require.Empty(t, w.recorded)
}

// Changes of state that do not fit into the journal cause an error and are not dropped silently.
func TestJournal_RejectsTooMuchState(t *testing.T) {
	set := newToolSet(t, "hoard", func(ctx context.Context, _ wordArgs) (string, error) {
		for key := range strings.FieldsSeq("a b c d e") {
			if err := hook.InTool(ctx).Memory().Set(key, strings.Repeat(key, 60<<10)); err != nil {
				return "", err
			}
		}
		return "ok", nil
	})
	in := newInput("go")
	in.Journal = &fakeJournal{}
	_, err := runToEnd(t.Context(), loop.Loop{Tools: set, Model: scripted.New(scripted.Call(toolCall("1", "hoard", "a")))}, in, ignoreEvents)
	require.True(t, failure.Is(err, failure.ResourceQuota), "%v", err)
	require.ErrorContains(t, err, "as an artifact")
}

// The state changes of a failed tool are dropped.
func TestTool_DropsTheChangesOfAFailedCall(t *testing.T) {
	set := newToolSet(t, "half", func(ctx context.Context, in wordArgs) (string, error) {
		if err := hook.InTool(ctx).Memory().Set(in.Word, true); err != nil {
			return "", err
		}
		if in.Word == "bad" {
			return "", errors.New("it failed")
		}
		return "ok", nil
	})
	for _, parallel := range []bool{false, true} {
		in := newInput("go")
		model := scripted.New(scripted.Call(toolCall("1", "half", "bad"), toolCall("2", "half", "good")), scripted.Say("done"))
		_, err := runToEnd(t.Context(), loop.Loop{Tools: set, Model: model, Parallel: parallel}, in, ignoreEvents)
		require.NoError(t, err)
		require.Len(t, in.Control.ChangesToStore(), 1)
		require.Contains(t, in.Control.ChangesToStore(), "good")
	}
}

// Handlers of BeforeTools can read the calls of a round but not change them. Only AfterLLM can change them.
func TestBeforeTools_CannotChangeTheCallsOfTheRound(t *testing.T) {
	for name, change := range map[string]func([]conversation.ToolCall) []conversation.ToolCall{
		"fewer": func(c []conversation.ToolCall) []conversation.ToolCall { return c[:1] },
		"more":  func(c []conversation.ToolCall) []conversation.ToolCall { return append(c, toolCall("9", "echo", "z")) },
		"other": func(c []conversation.ToolCall) []conversation.ToolCall {
			c[0].Name, c[0].ID = "fail", "other"
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ran []string
			in := newInput("go", hook.BeforeTools(func(_ context.Context, r *hook.Round) error { r.Calls = change(r.Calls); return nil }))
			model := scripted.New(scripted.Call(toolCall("1", "echo", "a"), toolCall("2", "echo", "b")))
			_, err := runToEnd(t.Context(), loop.Loop{Tools: newTools(t, &ran), Model: model, MaxIterations: 1}, in, ignoreEvents)
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b"}, ran)
			require.NoError(t, conversation.CheckRounds(in.Control.Turn().Messages()[:4]))
		})
	}
}

// If a handler stops the turn before the last call of a concurrent round, no tool of the round starts.
func TestParallel_StartsNoToolAfterAStop(t *testing.T) {
	j, w := &fakeJournal{}, &toolRuns{}
	in := newInput("go", hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		if c.ID == "2" {
			c.Stop("not this")
		}
		return nil
	}))
	in.Journal = j
	model := scripted.New(scripted.Call(toolCall("1", "at_most_once", "a"), toolCall("2", "at_most_once", "b")))
	out, err := runToEnd(t.Context(), loop.Loop{Tools: w.tools(t), Model: model, Parallel: true}, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, event.Stopped, out.Reason)
	require.Empty(t, w.recorded)
	for _, e := range j.durable {
		require.NotEqual(t, execution.Intent, e.Phase)
	}
}
