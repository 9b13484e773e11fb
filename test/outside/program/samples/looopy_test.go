package samples

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Document 003: a stateful agent over a stateless loop. It starts, takes turns, pauses, shuts down, and a new object with the same
// contextId continues; the same loop serves two contexts. It differs in this: the loop is agent.Agent and the stateful agent is
// local.Session; the state after an orderly shutdown is closed; a second executeTurn while one runs is an event, as there.
//
// Req: LP-1, LP-4, LP-6, LP-9, LP-10, LP-11, LP-12
func TestLooopy_AgentAndLoop(t *testing.T) {
	model := scripted.New(scripted.Say("One."), scripted.Say("Other."), scripted.Say("Two."), scripted.Say("Three."))
	loop, err := agent.New(agent.Config{Name: "assistant", Instructions: "Be brief.", Model: model})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, loop.Close()) })
	store := inmem.New(inmem.Config{})
	config := local.Config{Store: store, ID: "ctx-1", MaxMessages: 100}
	first, err := local.Open(t.Context(), loop, config)
	require.NoError(t, err)
	require.Equal(t, session.Ready, first.State())
	ask := func(s *local.Session, text string) string {
		answer, err := s.Ask(t.Context(), text)
		require.NoError(t, err)
		return answer
	}
	require.Equal(t, "One.", ask(first, "Hello"))
	other, err := local.Open(t.Context(), loop, local.Config{Store: store, ID: "ctx-2"})
	require.NoError(t, err)
	require.Equal(t, "Other.", ask(other, "Hello"))
	require.Len(t, model.Requests()[1].Messages, 1, "it knows nothing of the other context")

	require.NoError(t, first.Pause(t.Context()))
	require.Equal(t, session.Paused, first.State())
	require.Equal(t, "Two.", ask(first, "Go on"), "the next turn resumes it")
	require.NoError(t, first.Close(t.Context()))
	_, err = first.Ask(t.Context(), "No")
	require.True(t, failure.Is(err, failure.SessionClosed), "%v", err)

	again, err := local.Open(t.Context(), loop, config)
	require.NoError(t, err)
	require.Equal(t, 2, again.Info().Turns)
	require.Equal(t, "Three.", ask(again, "Still there?"))
	require.Len(t, model.Requests()[3].Messages, 5, "two turns and the new message")
	require.NoError(t, again.Save(t.Context()))
	require.NoError(t, again.Clear(t.Context()))
	left, err := again.Messages(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, session.Ready, again.State())
}

// Document 003, the turn's ends: input-required by a client tool, max iterations, and an error after which the user tries again.
//
// Req: LP-15, LP-16, LP-17, LP-8
func TestLooopy_EndsOfATurn(t *testing.T) {
	locate, err := tool.Client("locate", "Says where the user is.", json.RawMessage(`{"type":"object"}`))
	require.NoError(t, err)
	down := failure.New(failure.ResourceAPI, "model", "The model is down.")
	s, err := local.New(t.Context(), agent.Config{Name: "assistant", Tools: []tool.Tool{locate}, Model: scripted.New(
		call("1", "locate", `{}`), scripted.Say("You are in Oslo."),
		scripted.Fail(down), scripted.Say("Here I am."),
		call("2", "nothing", `{}`),
	)})
	require.NoError(t, err)

	done, err := s.Execute(t.Context(), local.Input{Text: "Where am I?"}, nil)
	require.NoError(t, err)
	require.Equal(t, event.InputRequired, done.Reason)
	require.Equal(t, session.InputRequired, s.State())
	done, err = s.Execute(t.Context(), local.Input{Answers: []execution.Answer{{ID: s.Pending()[0].ID, Verdict: execution.Succeed, Text: "Oslo"}}}, nil)
	require.NoError(t, err)
	require.Equal(t, "You are in Oslo.", done.Result.Text)

	_, err = s.Ask(t.Context(), "Are you there?")
	require.ErrorIs(t, err, down)
	require.Equal(t, session.Failed, s.State())
	done, err = s.Execute(t.Context(), local.Input{Continue: true}, nil) // executeTurn(null)
	require.NoError(t, err)
	require.Equal(t, "Here I am.", done.Result.Text)

	done, err = s.Execute(t.Context(), local.Input{Text: "Go", MaxIterations: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, event.MaxIterations, done.Reason)
	require.Equal(t, "Task incomplete: Maximum iterations (1) reached.", done.Result.Text)
	require.NoError(t, s.Close(t.Context()))
}
