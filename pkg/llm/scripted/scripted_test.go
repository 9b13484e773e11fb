package scripted_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

func read(ctx context.Context, m llm.Model, req llm.Request) (text string, calls int, err error) {
	for delta, failed := range m.Generate(ctx, req) {
		if failed != nil {
			return text, calls, failed
		}
		text += delta.Text
		calls += len(delta.ToolCalls)
	}
	return text, calls, nil
}

func TestModel_FollowsItsScript(t *testing.T) {
	m := scripted.New(
		scripted.Say("hello"),
		scripted.Call(conversation.ToolCall{ID: "a", Name: "add", Arguments: "{}"}),
		scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")),
	)

	text, _, err := read(t.Context(), m, llm.Request{System: "be kind"})
	require.NoError(t, err)
	require.Equal(t, "hello", text)
	_, calls, err := read(t.Context(), m, llm.Request{})
	require.NoError(t, err)
	require.Equal(t, 1, calls)
	_, _, err = read(t.Context(), m, llm.Request{})
	require.ErrorContains(t, err, "down")
	_, _, err = read(t.Context(), m, llm.Request{})
	require.ErrorContains(t, err, "the script ended before request 4")

	require.Len(t, m.Requests(), 4)
	require.Equal(t, "be kind", m.Requests()[0].System)
}

func TestModel_WaitsUntilReleasedOrCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := scripted.New(scripted.Reply{Deltas: []string{"never"}, Wait: make(chan struct{})})
	cancel()
	text, _, err := read(ctx, m, llm.Request{})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, text)
}
