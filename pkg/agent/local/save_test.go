package local_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func saveTests() sessionTests {
	return sessionTests{
		"Save_IsTheOnlyWriteWithNoAutoSave": saveIsTheOnlyWriteWithNoAutoSave,
		"Save_WritesTurnsInOrder":           saveWritesTurnsInOrder,
		"Save_PauseAndCloseSaveToo":         savePauseAndCloseSaveToo,
		"Save_KeepsTurnsThatCannotBeStored": saveKeepsTurnsThatCannotBeStored,
		"Save_AppendsAfterOtherProcesses":   saveAppendsAfterOtherProcesses,
	}
}

// Req: LP-23, C-19
func saveIsTheOnlyWriteWithNoAutoSave(t *testing.T, store memory.Store) {
	a, model := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{artifactSavingHandler()}, Instructions: "Last: {last?}. Note: {artifact.note?}"},
		scripted.Say("1"), scripted.Say("2"))
	s := openSession(t, a, local.Config{Store: store, NoAutoSave: true})
	ask(t, s, "a")
	ask(t, s, "b")
	_, err := store.GetSession(t.Context(), session.Ref{Tenant: local.DefaultTenant, Session: s.ID()})
	require.Equal(t, failure.NotFound, failure.ModeOf(err))
	// Each turn sees the turns before it, although they are not saved yet.
	require.Equal(t, "Last: b. Note: b", model.Requests()[1].System)
	require.Equal(t, []string{"user: a", "ai: 1", "user: b"}, transcript(model.Requests()[1].Messages))
	messages, err := s.Messages(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, []string{"ai: 1", "user: b", "ai: 2"}, transcript(messages))
	require.Equal(t, 2, s.Info().Turns)
	require.EqualValues(t, 4, s.Info().Size.Messages)
}

// Req: LP-12, LP-23, C-19
func saveWritesTurnsInOrder(t *testing.T, store memory.Store) {
	down := failure.New(failure.ResourceAPI, "test", "down")
	a, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{artifactSavingHandler()}, Tools: []tool.Tool{lookup(t)}},
		lookupReply("x"), scripted.Say("1"), lookupReply("y"), scripted.Fail(down), scripted.Say("3"))
	s := openSession(t, a, local.Config{Store: store, NoAutoSave: true})
	require.NoError(t, s.Save(t.Context()), "with nothing to save")
	ask(t, s, "a")
	_, err := runTurn(t, s, local.Input{Text: "b"})
	require.ErrorIs(t, err, down)
	require.Equal(t, session.Failed, s.State())
	_, err = runTurn(t, s, local.Input{Continue: true})
	require.NoError(t, err)
	artifacts, err := s.Artifacts(t.Context())
	require.NoError(t, err)
	require.Len(t, artifacts, 2, "b was saved twice, and is one version")
	require.NoError(t, s.Save(t.Context()))
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{
		"user: a", "ai: → lookup", "tool: found x", "ai: 1",
		"user: b", "ai: → lookup (partial)", "tool: found y (partial)", "ai: 3",
	}, said)
	require.Equal(t, session.Ready, info.State)
	require.Equal(t, 3, info.Turns)
	require.Equal(t, info, copyTimes(s.Info(), info))
	require.NoError(t, s.Save(t.Context()), "a second Save does nothing")
	again, _ := storedMessages(t, store, s)
	require.Equal(t, said, again)
	artifacts, err = s.Artifacts(t.Context())
	require.NoError(t, err)
	require.Len(t, artifacts, 2)
	content, _, err := hookstore.New(store, memory.Lease{Ref: session.Ref{Tenant: local.DefaultTenant, Session: s.ID()}}, "").LoadArtifact(t.Context(),
		"note", 0)
	require.NoError(t, err)
	require.Equal(t, "b", string(content))
}

// copyTimes returns session s with the times of other.
func copyTimes(s, other session.Session) session.Session {
	s.Created, s.LastActivity = other.Created, other.LastActivity
	return s
}

// Req: LP-9, LP-23
func savePauseAndCloseSaveToo(t *testing.T, store memory.Store) {
	for want, end := range map[session.State]func(*local.Session, context.Context) error{
		session.Paused: (*local.Session).Pause, session.Closed: (*local.Session).Close,
	} {
		a, _ := scriptedAgent(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"))
		s := openSession(t, a, local.Config{Store: store, NoAutoSave: true})
		ask(t, s, "a")
		require.NoError(t, end(s, t.Context()))
		said, info := storedMessages(t, store, s)
		require.Equal(t, []string{"user: a", "ai: 1"}, said)
		require.Equal(t, want, info.State)
		again := openSession(t, a, local.Config{Store: store, NoAutoSave: true, ID: s.ID()})
		_, info = storedMessages(t, store, s)
		require.Equal(t, want, info.State, "nothing is written")
		ask(t, again, "b")
		require.NoError(t, again.Save(t.Context()))
		said, info = storedMessages(t, store, s)
		require.Equal(t, []string{"user: a", "ai: 1", "user: b", "ai: 2"}, said)
		require.Equal(t, session.Ready, info.State)
	}
}

func saveKeepsTurnsThatCannotBeStored(t *testing.T, store memory.Store) {
	long := hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		return "", turn.Memory().Set(fmt.Sprintf("%0*d", memory.MaxStateKeyBytes+1, turn.Info().Turn), 1)
	})
	a, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{long}}, scripted.Say("1"), scripted.Say("2"))
	s := openSession(t, a, local.Config{Store: store, NoAutoSave: true})
	ask(t, s, "a")
	ask(t, s, "b")
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(s.Save(t.Context())))
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{"user: a", "ai: 1 (partial)", "user: b", "ai: 2 (partial)"}, said)
	require.Equal(t, session.Failed, info.State)
	require.NoError(t, s.Save(t.Context()))
}

// Another process has written to the conversation and has an open turn. Save comes after its turns.
func saveAppendsAfterOtherProcesses(t *testing.T, store memory.Store) {
	wait := make(chan struct{})
	a, _ := scriptedAgent(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"), scripted.Reply{Deltas: []string{"3"}, Wait: wait})
	s := openSession(t, a, local.Config{Store: store, NoAutoSave: true})
	ask(t, s, "mine")
	other := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	ask(t, other, "yours")
	for e, err := range other.Turn(t.Context(), local.Input{Text: "and yours"}) {
		require.NoError(t, err)
		if e.Kind() == "user_input" {
			require.Equal(t, failure.SessionBusy, failure.ModeOf(s.Save(t.Context())))
			close(wait)
		}
	}
	require.NoError(t, s.Save(t.Context()))
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{"user: yours", "ai: 2", "user: and yours", "ai: 3", "user: mine", "ai: 1"}, said)
	require.Equal(t, 3, info.Turns)
	require.Equal(t, 3, s.Info().Turns)
}
