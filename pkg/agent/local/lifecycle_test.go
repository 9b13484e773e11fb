package local_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func lifeTests() sessionTests {
	return sessionTests{
		"Life_StartAndCloseMayBeRepeated":            lifeStartAndCloseMayBeRepeated,
		"Life_AnotherSessionContinues":               lifeAnotherSessionContinues,
		"Life_StoresItsStateAsItChanges":             lifeStoresItsStateAsItChanges,
		"Life_SessionOfAnotherUserIsNotFound":        lifeSessionOfAnotherUserIsNotFound,
		"Life_ClearKeepsTheSessionUsable":            lifeClearKeepsTheSessionUsable,
		"Life_AnotherIDBeginsAtTurnOne":              lifeAnotherIDBeginsAtTurnOne,
		"Life_SessionsOfAUserShareStateAndArtifacts": lifeSessionsOfAUserShareStateAndArtifacts,
		"Life_StartsTheToolsOfItsAgent":              lifeStartsTheToolsOfItsAgent,
		"Life_AFailedStartOpensNothing":              lifeAFailedStartOpensNothing,
	}
}

// Req: LP-6, LP-7, LP-7a, LP-9, C-3
func lifeStartAndCloseMayBeRepeated(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		a, _ := scriptedAgent(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"))
		s := openSession(t, a, local.Config{Store: store, NoAutoSave: noAutoSave})
		require.NoError(t, s.Start(t.Context()))
		ask(t, s, "a")
		require.NoError(t, s.Start(t.Context()))
		require.Equal(t, 1, s.Info().Turns)
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		require.Equal(t, session.Closed, s.State())
		_, info := storedMessages(t, store, s)
		require.Equal(t, session.Closed, info.State)
		requireRejected(t, s, failure.SessionClosed)
		for name, op := range map[string]func(context.Context) error{"Save": s.Save, "Pause": s.Pause, "Clear": s.Clear} {
			require.Equal(t, failure.SessionClosed, failure.ModeOf(op(t.Context())), name)
		}
		require.NoError(t, s.Start(t.Context()))
		require.Equal(t, session.Ready, s.State())
		require.Equal(t, 2, ask(t, s, "b").Turn)
		require.NoError(t, s.Save(t.Context()))
		said, _ := storedMessages(t, store, s)
		require.Equal(t, []string{"user: a", "ai: 1", "user: b", "ai: 2"}, said)
	}
}

// Req: LP-9, LP-10, LP-12, C-4
func lifeAnotherSessionContinues(t *testing.T, store memory.Store) {
	for _, end := range []func(*local.Session, context.Context) error{(*local.Session).Pause, (*local.Session).Close, (*local.Session).Save} {
		a, model := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("x"), scripted.Say("1"), scripted.Say("2"), scripted.Say("3"))
		first := openSession(t, a, local.Config{Store: store})
		ask(t, first, "a")
		ask(t, first, "b")
		require.NoError(t, end(first, t.Context()))
		second := openSession(t, a, local.Config{Store: store, ID: first.ID()})
		require.Equal(t, session.Ready, second.State())
		require.Equal(t, 2, second.Info().Turns)
		require.Equal(t, 3, ask(t, second, "c").Turn)
		want := []string{"user: a", "ai: → lookup", "tool: found x", "ai: 1", "user: b", "ai: 2", "user: c"}
		require.Equal(t, want, transcript(model.Requests()[3].Messages))
	}
}

// Req: LP-5, LP-6, LP-9, LP-10a, LP-19, LP-21
func lifeStoresItsStateAsItChanges(t *testing.T, store memory.Store) {
	a, _ := scriptedAgent(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"))
	s := openSession(t, a, local.Config{Store: store, User: "alice"})
	_, info := storedMessages(t, store, s)
	require.Equal(t, session.Created, info.State)
	require.Equal(t, "alice", info.User)
	ask(t, s, "a")
	_, info = storedMessages(t, store, s)
	require.Equal(t, session.Ready, info.State)
	require.NoError(t, s.Pause(t.Context()))
	require.Equal(t, session.Paused, s.State())
	_, info = storedMessages(t, store, s)
	require.Equal(t, session.Paused, info.State)
	again := openSession(t, a, local.Config{Store: store, ID: s.ID(), User: "alice"})
	require.Equal(t, session.Ready, again.State(), "a stored pause does not bind a new Session")
	_, info = storedMessages(t, store, s)
	require.Equal(t, session.Ready, info.State)
	require.Equal(t, info.Turns, again.Info().Turns)
	require.Equal(t, info.Created, again.Info().Created)
	ask(t, s, "b") // still in RAM, and resumed by its next turn
	require.Equal(t, session.Ready, s.State())
	done, err := s.Compact(t.Context(), 1, "They talked.")
	require.NoError(t, err)
	require.EqualValues(t, 3, done.Messages)
	said, _ := storedMessages(t, store, s)
	require.Equal(t, []string{"summary", "ai: 2"}, said)
}

func lifeSessionOfAnotherUserIsNotFound(t *testing.T, store memory.Store) {
	a, _ := scriptedAgent(t, agent.Config{}, scripted.Say("1"))
	s := openSession(t, a, local.Config{Store: store, User: "alice"})
	ask(t, s, "a")
	for _, user := range []string{"", "bob"} {
		for _, noAutoSave := range []bool{false, true} {
			_, err := local.Open(t.Context(), a, local.Config{Store: store, ID: s.ID(), User: user, NoAutoSave: noAutoSave})
			require.Equal(t, failure.NotFound, failure.ModeOf(err), "%q: %v", user, err)
		}
	}
}

// artifactSavingHandler returns a handler that saves the user's text of each turn as an artifact.
func artifactSavingHandler() hook.Handler {
	return hook.BeforeAgent(func(ctx context.Context, turn *hook.Turn) (string, error) {
		_, err := turn.Memory().SaveArtifact(ctx, "note", "text/plain", []byte(turn.Info().Prompt))
		return "", errors.Join(err, turn.Memory().Set("last", turn.Info().Prompt))
	})
}

func lifeSessionsOfAUserShareStateAndArtifacts(t *testing.T, store memory.Store) {
	saving := hook.BeforeAgent(func(ctx context.Context, turn *hook.Turn) (string, error) {
		_, err := turn.Memory().SaveArtifact(ctx, "user:note", "text/plain", []byte(turn.Info().Prompt))
		return "", err
	})
	for user, noAutoSave := range map[string]bool{"alice": false, "bob": true} {
		writer, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{saving}}, scripted.Say("1"), scripted.Say("2"))
		reader, model := scriptedAgent(t, agent.Config{Instructions: "Note: {artifact.user:note?}"}, scripted.Say("1"))
		one := openSession(t, writer, local.Config{Store: store, User: user, NoAutoSave: noAutoSave})
		two := openSession(t, writer, local.Config{Store: store, User: user, NoAutoSave: noAutoSave})
		for _, s := range []*local.Session{one, two} {
			ask(t, s, "of "+s.ID())
			require.NoError(t, s.Save(t.Context()))
		}
		s := openSession(t, reader, local.Config{Store: store, User: user})
		ask(t, s, "a")
		require.Equal(t, "Note: of "+two.ID(), model.Requests()[0].System)
		artifacts, err := one.Artifacts(t.Context())
		require.NoError(t, err)
		require.Len(t, artifacts, 2)

		alone, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{saving}}, scripted.Say("1"))
		_, err = runTurn(t, openSession(t, alone, local.Config{Store: store, NoAutoSave: noAutoSave}), local.Input{Text: "b"})
		require.ErrorContains(t, err, "has no user, so it has no user: artifacts")
	}
}

// Req: LP-11, LP-22
func lifeClearKeepsTheSessionUsable(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		for _, saved := range []bool{false, true} {
			a, model := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{artifactSavingHandler()}}, scripted.Say("1"), scripted.Say("2"),
				scripted.Say("3"))
			s := openSession(t, a, local.Config{Store: store, NoAutoSave: noAutoSave})
			ask(t, s, "a")
			if saved {
				require.NoError(t, s.Save(t.Context()))
			}
			ask(t, s, "b")
			artifacts, err := s.Artifacts(t.Context())
			require.NoError(t, err)
			require.Len(t, artifacts, 2)
			require.Equal(t, 2, artifacts[1].Version)
			require.NoError(t, s.Clear(t.Context()))
			require.Equal(t, session.Ready, s.State())
			messages, err := s.Messages(t.Context(), 0)
			require.NoError(t, err)
			require.Empty(t, messages)
			artifacts, err = s.Artifacts(t.Context())
			require.NoError(t, err)
			require.Empty(t, artifacts)
			require.Zero(t, s.Info().Size.Messages)
			ask(t, s, "c")
			require.Equal(t, []string{"user: c"}, transcript(model.Requests()[2].Messages))
			require.NoError(t, s.Save(t.Context()))
			said, info := storedMessages(t, store, s)
			require.Equal(t, []string{"user: c", "ai: 3"}, said)
			require.Equal(t, info.Turns, s.Info().Turns)
			require.Equal(t, info.Size.Messages, s.Info().Size.Messages)
		}
	}
}

// Req: CO-14, CO-19
func lifeAnotherIDBeginsAtTurnOne(t *testing.T, store memory.Store) {
	a, model := scriptedAgent(t, agent.Config{Instructions: "Be brief."}, scripted.Say("1"), scripted.Say("2"))
	ask(t, openSession(t, a, local.Config{Store: store}), "a")
	require.Equal(t, 1, ask(t, openSession(t, a, local.Config{Store: store}), "b").Turn)
	require.Equal(t, []string{"user: b"}, transcript(model.Requests()[1].Messages))
	require.Equal(t, "Be brief.", model.Requests()[1].System)
}

// lazyTool is a tool that must be started before it is called. It counts starts and closes.
type lazyTool struct {
	tool.Tool
	started, closed int
	startErr        error
}

func (l *lazyTool) Start(context.Context) error { l.started++; return l.startErr }

func (l *lazyTool) Close() error { l.closed++; return nil }

func lifeStartsTheToolsOfItsAgent(t *testing.T, store memory.Store) {
	l := &lazyTool{Tool: lookup(t)}
	a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{l}}, lookupReply("x"), scripted.Say("1"))
	s := openSession(t, a, local.Config{Store: store})
	openSession(t, a, local.Config{Store: store})
	ask(t, s, "a")
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, 1, l.started)
	require.Zero(t, l.closed, "the caller closes the agent")
	require.NoError(t, a.Close())
}

// Req: LP-6
func lifeAFailedStartOpensNothing(t *testing.T, store memory.Store) {
	l := &lazyTool{Tool: lookup(t), startErr: errors.New("no")}
	a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{l}})
	s, err := local.Open(t.Context(), a, local.Config{Store: store, ID: "x"})
	require.Equal(t, failure.ResourceTool, failure.ModeOf(err))
	require.Equal(t, session.Created, s.State())
	requireRejected(t, s, failure.SessionClosed)
	l.startErr = nil
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, session.Ready, s.State())
}
