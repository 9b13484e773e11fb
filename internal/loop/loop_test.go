package loop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

type wordArgs struct {
	Word string `json:"word"`
}

// newTools returns three tools: echo, which records its calls in order, fail, and panic.
func newTools(t *testing.T, calls *[]string) *tool.Set {
	t.Helper()
	var all []tool.Tool
	for name, fn := range map[string]func(context.Context, wordArgs) (string, error){
		"echo": func(_ context.Context, in wordArgs) (string, error) {
			*calls = append(*calls, in.Word)
			return "heard " + in.Word, nil
		},
		"fail":   func(context.Context, wordArgs) (string, error) { return "", errors.New("the disk is full") },
		"panic":  func(context.Context, wordArgs) (string, error) { panic("oh") },
		"silent": func(context.Context, wordArgs) (string, error) { return "", nil },
	} {
		one, err := tool.Func(name, "A tool of the test.", fn)
		require.NoError(t, err)
		all = append(all, one)
	}
	set, err := tool.NewSet(all...)
	require.NoError(t, err)
	return set
}

func toolCall(id, name, said string) conversation.ToolCall {
	return conversation.ToolCall{ID: id, Name: name, Arguments: fmt.Sprintf(`{"word": %q}`, said)}
}

// Req: CO-22, CO-23, CO-24, CO-44
func TestLoop_AnswersWithoutTools(t *testing.T) {
	model := scripted.New(scripted.Reply{Deltas: []string{"Hel", "lo"}, Usage: execution.Usage{InputTokens: 3, OutputTokens: 2}})
	var got eventRecorder
	out, err := runToEnd(t.Context(), loop.Loop{Model: model}, newInput("hi"), got.emit)
	require.NoError(t, err)

	usage := execution.Usage{InputTokens: 3, OutputTokens: 2, ModelCalls: 1}
	require.Equal(t, "Hello", out.Text)
	require.Equal(t, 1, out.Iterations)
	require.Equal(t, usage, out.Usage)
	want := []event.Payload{
		event.TextDelta{Text: "Hel"},
		event.TextDelta{Text: "lo"},
		event.ModelCall{Model: scripted.Name, Iteration: 1, Usage: usage, Finish: event.FinishStop},
	}
	require.Empty(t, cmp.Diff(want, got.events, cmpopts.IgnoreFields(event.ModelCall{}, "Duration")))
}

// The reasoning of a model is emitted before its answer and is not part of the answer.
func TestLoop_ShowsTheReasoningOfTheModel(t *testing.T) {
	model := scripted.New(scripted.Reply{Thought: "The user greets.", Deltas: []string{"Hel", "lo"}})
	var got eventRecorder
	out, err := runToEnd(t.Context(), loop.Loop{Model: model}, newInput("hi"), got.emit)
	require.NoError(t, err)
	require.Equal(t, "Hello", out.Text)
	require.Equal(t, []event.Payload{
		event.Thinking{Topic: event.Reasoning, Text: "The user greets."}, event.TextDelta{Text: "Hel"}, event.TextDelta{Text: "lo"},
	}, got.events[:3])
}

// A long thought becomes several events, because an event has a limit.
func TestLoop_SplitsALongThought(t *testing.T) {
	long := strings.Repeat("ä ", 20<<10)
	var got eventRecorder
	_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(scripted.Reply{Thought: long, Deltas: []string{"Hi."}})}, newInput("hi"), got.emit)
	require.NoError(t, err)
	whole, pieces := "", 0
	for _, e := range got.events {
		if thought, ok := e.(event.Thinking); ok {
			require.LessOrEqual(t, len(thought.Text), 16<<10)
			whole, pieces = whole+thought.Text, pieces+1
		}
	}
	require.Equal(t, long, whole)
	require.Equal(t, 4, pieces)
}

// An answer that may be incomplete is accompanied by a warning.
func TestLoop_WarnsAboutAnIncompleteAnswer(t *testing.T) {
	for finish, reason := range map[llm.Finish]string{llm.FinishLength: "ANSWER_CUT", llm.FinishRefusal: "ANSWER_FILTERED", llm.FinishOther: "ANSWER_END_UNKNOWN"} {
		model := scripted.New(scripted.Reply{Deltas: []string{"Hel"}, Finish: finish})
		var got eventRecorder
		out, err := runToEnd(t.Context(), loop.Loop{Model: model}, newInput("hi"), got.emit)
		require.NoError(t, err)
		require.Equal(t, "Hel", out.Text)
		var reasons []string
		for _, e := range got.events {
			if w, ok := e.(event.Warning); ok {
				reasons = append(reasons, w.Reason)
			}
		}
		require.Equal(t, []string{reason}, reasons)
	}
}

// Req: CO-29, CO-31, CO-33, CO-35, CO-39b, CO-45
func TestLoop_RunsToolsInOrderOnePerCall(t *testing.T) {
	model := scripted.New(
		scripted.Reply{Deltas: []string{"Let me see."}, ToolCalls: []conversation.ToolCall{
			toolCall("1", "echo", "a"), toolCall("2", "fail", "b"), toolCall("3", "nothing", "c"), toolCall("4", "panic", "d"),
			toolCall("5", "silent", "e"), toolCall("6", "echo", "f"),
			{ID: "7", Name: "echo", Arguments: `{}`},
		}},
		scripted.Say("done"),
	)
	var calls []string
	var got eventRecorder
	out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: newTools(t, &calls)}, newInput("go"), got.emit)
	require.NoError(t, err)
	require.Equal(t, "done", out.Text)
	require.Equal(t, 2, out.Iterations)
	require.Equal(t, []string{"a", "f"}, calls)

	second := model.Requests()[1].Messages
	require.Len(t, second, 1+1+7)
	require.Equal(t, "Let me see.", second[1].Text)
	require.Len(t, second[1].ToolCalls, 7)
	for i, m := range second[2:] {
		require.Equal(t, conversation.RoleTool, m.Role)
		require.Equal(t, fmt.Sprint(i+1), m.ToolCallID)
		require.NotEmpty(t, m.Text)
	}
	require.Equal(t, "heard a", second[2].Text)
	require.Equal(t, "Error: the disk is full", second[3].Text)
	require.Contains(t, second[4].Text, `There is no tool "nothing"; there are `)
	require.Equal(t, "Error: the tool panicked: oh", second[5].Text)
	require.Contains(t, second[8].Text, "required: word")

	var statuses []event.ToolStatus
	open := ""
	for _, e := range got.events {
		switch e := e.(type) {
		case event.ToolStarted:
			require.Empty(t, open, "one at a time")
			open = e.CallID
		case event.ToolFinished:
			require.Equal(t, open, e.CallID)
			open = ""
			statuses = append(statuses, e.Status)
		}
	}
	require.Equal(t, []event.ToolStatus{
		event.ToolSuccess, event.ToolError, event.ToolNotFound, event.ToolError,
		event.ToolSuccess, event.ToolSuccess, event.ToolError,
	}, statuses)
}

// Req: CO-33
func TestLoop_AssignsMissingCallIDs(t *testing.T) {
	model := scripted.New(
		scripted.Call(toolCall("", "echo", "a"), toolCall("x", "echo", "b"), toolCall("x", "echo", "c")),
		scripted.Call(toolCall("call_1", "echo", "d")),
		scripted.Say("done"),
	)
	var calls []string
	out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: newTools(t, &calls)}, newInput("go"), new(eventRecorder).emit)
	require.NoError(t, err)

	seen := map[string]bool{}
	for _, m := range out.Messages {
		if m.Role != conversation.RoleTool {
			continue
		}
		require.False(t, seen[m.ToolCallID], "%s twice", m.ToolCallID)
		seen[m.ToolCallID] = true
	}
	require.Equal(t, map[string]bool{"call_1": true, "x": true, "call_2": true, "call_3": true}, seen)
}

// Req: CO-22, CO-26
func TestLoop_StopsAtItsLimit(t *testing.T) {
	model := scripted.New(scripted.Call(toolCall("1", "echo", "a")), scripted.Call(toolCall("2", "echo", "b")), scripted.Say("never"))
	var calls []string
	var got eventRecorder
	out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: newTools(t, &calls), MaxIterations: 2}, newInput("go"), got.emit)
	require.NoError(t, err)
	require.Equal(t, event.MaxIterations, out.Reason)
	require.Equal(t, "Task incomplete: Maximum iterations (2) reached.", out.Text)
	require.Len(t, model.Requests(), 2)
	require.Equal(t, event.Warning{Reason: loop.ReasonMaxIterations, Message: out.Text}, got.events[len(got.events)-1])
}

func TestLoop_KeepsTheModeOfTheModelsError(t *testing.T) {
	model := scripted.New(scripted.Fail(failure.New(failure.PolicyRateLimit, "test", "slow down")))
	in := newInput("hi")
	_, err := runToEnd(t.Context(), loop.Loop{Model: model}, in, ignoreEvents)
	require.True(t, failure.Is(err, failure.PolicyRateLimit), "%v", err)
	require.Equal(t, 1, in.Control.Turn().Usage().ModelCalls)
}

func TestLoop_ReportsWhyItsContextEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		want    failure.Mode
	}{
		"cancelled": {context.WithCancel, failure.UserCancelled},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 0)
		}, failure.AgentTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := tc.context(t.Context())
			model := scripted.New(scripted.Reply{Wait: make(chan struct{})})
			cancel()
			_, err := runToEnd(ctx, loop.Loop{Model: model}, newInput("hi"), new(eventRecorder).emit)
			require.True(t, failure.Is(err, tc.want), "%v", err)
		})
	}
}

func TestLoop_FinishesTheToolCallThatWasCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	slow, err := tool.Func("slow", "Waits.", func(ctx context.Context, _ wordArgs) (string, error) {
		cancel()
		<-ctx.Done()
		return "", ctx.Err()
	})
	require.NoError(t, err)
	set, err := tool.NewSet(slow)
	require.NoError(t, err)

	var got eventRecorder
	model := scripted.New(scripted.Call(toolCall("1", "slow", "a"), toolCall("2", "slow", "b")))
	_, err = runToEnd(ctx, loop.Loop{Model: model, Tools: set}, newInput("hi"), got.emit)
	require.True(t, failure.Is(err, failure.UserCancelled), "%v", err)
	finished, ok := got.events[len(got.events)-1].(event.ToolFinished)
	require.True(t, ok)
	require.Equal(t, "1", finished.CallID)
}

func TestLoop_EndsWhenItsConsumerStops(t *testing.T) {
	broken := errors.New("the stream is gone")
	model := scripted.New(scripted.Say("hello"), scripted.Say("never"))
	_, err := runToEnd(t.Context(), loop.Loop{Model: model}, newInput("hi"), func(event.Payload) error { return broken })
	require.ErrorIs(t, err, broken)
	require.Len(t, model.Requests(), 1)
}

// Req: CO-47
func TestLoop_LimitsTheResultOfATool(t *testing.T) {
	loud, err := tool.Func("loud", "Says much.", func(context.Context, wordArgs) (string, error) {
		return strings.Repeat("ä", toolcall.MaxTextBytes), nil
	})
	require.NoError(t, err)
	set, err := tool.NewSet(loud)
	require.NoError(t, err)

	var got eventRecorder
	model := scripted.New(scripted.Call(toolCall("1", "loud", "a")), scripted.Say("done"))
	out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: set}, newInput("hi"), got.emit)
	require.NoError(t, err)
	require.LessOrEqual(t, len(out.Messages[1].Text), toolcall.MaxTextBytes)
	for _, e := range got.events {
		if finished, ok := e.(event.ToolFinished); ok {
			require.Len(t, []rune(finished.Summary), event.MaxSummaryChars)
		}
	}
}
