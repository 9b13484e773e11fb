package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func lifeTests() sessionTests {
	return sessionTests{
		"Life_StartCloseStart":             lifeStartCloseStart,
		"Life_AnotherObjectGoesOn":         lifeAnotherObjectGoesOn,
		"Life_StoresItsStateAsItChanges":   lifeStoresItsStateAsItChanges,
		"Life_OfAnotherUserIsNotFound":     lifeOfAnotherUserIsNotFound,
		"Life_ClearLeavesTheSession":       lifeClearLeavesTheSession,
		"Life_AnotherIDBeginsAtTurnOne":    lifeAnotherIDBeginsAtTurnOne,
		"Life_StartsTheToolsOfItsAgent":    lifeStartsTheToolsOfItsAgent,
		"Life_WhatFailsToStartIsNotOpened": lifeWhatFailsToStartIsNotOpened,
	}
}

// Req: LP-6, LP-7, LP-7a, LP-9, C-3
func lifeStartCloseStart(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		a, _ := talker(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"))
		s := talk(t, a, agent.SessionConfig{Store: store, NoAutoSave: noAutoSave})
		require.NoError(t, s.Start(t.Context()))
		ask(t, s, "a")
		require.NoError(t, s.Start(t.Context()))
		require.Equal(t, 1, s.Info().Turns)
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		require.Equal(t, session.Closed, s.State())
		_, info := stored(t, store, s)
		require.Equal(t, session.Closed, info.State)
		refused(t, s, failure.SessionClosed)
		for name, op := range map[string]func(context.Context) error{"Save": s.Save, "Pause": s.Pause, "Clear": s.Clear} {
			require.Equal(t, failure.SessionClosed, failure.ModeOf(op(t.Context())), name)
		}
		require.NoError(t, s.Start(t.Context()))
		require.Equal(t, session.Ready, s.State())
		require.Equal(t, 2, ask(t, s, "b").Turn)
		require.NoError(t, s.Save(t.Context()))
		said, _ := stored(t, store, s)
		require.Equal(t, []string{"user: a", "ai: 1", "user: b", "ai: 2"}, said)
	}
}

// Req: LP-9, LP-10, LP-12, C-4
func lifeAnotherObjectGoesOn(t *testing.T, store memory.Store) {
	for _, end := range []func(*agent.Session, context.Context) error{(*agent.Session).Pause, (*agent.Session).Close, (*agent.Session).Save} {
		a, model := talker(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, look("x"), scripted.Say("1"), scripted.Say("2"), scripted.Say("3"))
		first := talk(t, a, agent.SessionConfig{Store: store})
		ask(t, first, "a")
		ask(t, first, "b")
		require.NoError(t, end(first, t.Context()))
		second := talk(t, a, agent.SessionConfig{Store: store, ID: first.ID()})
		require.Equal(t, session.Ready, second.State())
		require.Equal(t, 2, second.Info().Turns)
		require.Equal(t, 3, ask(t, second, "c").Turn)
		want := []string{"user: a", "ai: → lookup", "tool: found x", "ai: 1", "user: b", "ai: 2", "user: c"}
		require.Equal(t, want, spoken(model.Requests()[3].Messages))
	}
}

// Req: LP-5, LP-6, LP-9, LP-10a, LP-19, LP-21
func lifeStoresItsStateAsItChanges(t *testing.T, store memory.Store) {
	a, _ := talker(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"))
	s := talk(t, a, agent.SessionConfig{Store: store, User: "alice"})
	_, info := stored(t, store, s)
	require.Equal(t, session.Created, info.State)
	require.Equal(t, "alice", info.User)
	ask(t, s, "a")
	_, info = stored(t, store, s)
	require.Equal(t, session.Ready, info.State)
	require.NoError(t, s.Pause(t.Context()))
	require.Equal(t, session.Paused, s.State())
	_, info = stored(t, store, s)
	require.Equal(t, session.Paused, info.State)
	again := talk(t, a, agent.SessionConfig{Store: store, ID: s.ID(), User: "alice"})
	require.Equal(t, session.Ready, again.State(), "a stored pause is of somebody who went")
	_, info = stored(t, store, s)
	require.Equal(t, session.Ready, info.State)
	require.Equal(t, info.Turns, again.Info().Turns)
	require.Equal(t, info.Created, again.Info().Created)
	ask(t, s, "b") // in memory still, and resumed by its next turn
	require.Equal(t, session.Ready, s.State())
	done, err := s.Compact(t.Context(), 1, "They talked.")
	require.NoError(t, err)
	require.EqualValues(t, 3, done.Messages)
	said, _ := stored(t, store, s)
	require.Equal(t, []string{"summary", "ai: 2"}, said)
}

func lifeOfAnotherUserIsNotFound(t *testing.T, store memory.Store) {
	a, _ := talker(t, agent.Config{}, scripted.Say("1"))
	s := talk(t, a, agent.SessionConfig{Store: store, User: "alice"})
	ask(t, s, "a")
	for _, user := range []string{"", "bob"} {
		for _, noAutoSave := range []bool{false, true} {
			_, err := agent.Open(t.Context(), a, agent.SessionConfig{Store: store, ID: s.ID(), User: user, NoAutoSave: noAutoSave})
			require.Equal(t, failure.NotFound, failure.ModeOf(err), "%q: %v", user, err)
		}
	}
}

// making saves an artifact in each turn: the text of the user.
func making() hook.Handler {
	return hook.BeforeAgent(func(ctx context.Context, turn *hook.Turn) (string, error) {
		_, err := turn.Memory().SaveArtifact(ctx, "note", "text/plain", []byte(turn.Info().Prompt))
		return "", errors.Join(err, turn.Memory().Set("last", turn.Info().Prompt))
	})
}

// Req: LP-11, LP-22
func lifeClearLeavesTheSession(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		for _, saved := range []bool{false, true} {
			a, model := talker(t, agent.Config{Handlers: []hook.Handler{making()}}, scripted.Say("1"), scripted.Say("2"), scripted.Say("3"))
			s := talk(t, a, agent.SessionConfig{Store: store, NoAutoSave: noAutoSave})
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
			require.Zero(t, s.Info().Messages)
			ask(t, s, "c")
			require.Equal(t, []string{"user: c"}, spoken(model.Requests()[2].Messages))
			require.NoError(t, s.Save(t.Context()))
			said, info := stored(t, store, s)
			require.Equal(t, []string{"user: c", "ai: 3"}, said)
			require.Equal(t, info.Turns, s.Info().Turns)
			require.Equal(t, info.Messages, s.Info().Messages)
		}
	}
}

// Req: CO-14, CO-19
func lifeAnotherIDBeginsAtTurnOne(t *testing.T, store memory.Store) {
	a, model := talker(t, agent.Config{Instructions: "Be brief."}, scripted.Say("1"), scripted.Say("2"))
	ask(t, talk(t, a, agent.SessionConfig{Store: store}), "a")
	require.Equal(t, 1, ask(t, talk(t, a, agent.SessionConfig{Store: store}), "b").Turn)
	require.Equal(t, []string{"user: b"}, spoken(model.Requests()[1].Messages))
	require.Equal(t, "Be brief.", model.Requests()[1].System)
}

// lazy is a tool that must be started.
type lazy struct {
	tool.Tool
	started, closed int
	fails           error
}

func (l *lazy) Start(context.Context) error { l.started++; return l.fails }

func (l *lazy) Close() error { l.closed++; return nil }

func lifeStartsTheToolsOfItsAgent(t *testing.T, store memory.Store) {
	l := &lazy{Tool: lookup(t)}
	a, _ := talker(t, agent.Config{Tools: []tool.Tool{l}}, look("x"), scripted.Say("1"))
	s := talk(t, a, agent.SessionConfig{Store: store})
	talk(t, a, agent.SessionConfig{Store: store})
	ask(t, s, "a")
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, 1, l.started)
	require.Zero(t, l.closed, "the agent is of who made it")
	require.NoError(t, a.Close())
}

// Req: LP-6
func lifeWhatFailsToStartIsNotOpened(t *testing.T, store memory.Store) {
	l := &lazy{Tool: lookup(t), fails: errors.New("no")}
	a, _ := talker(t, agent.Config{Tools: []tool.Tool{l}})
	s, err := agent.Open(t.Context(), a, agent.SessionConfig{Store: store, ID: "x"})
	require.Equal(t, failure.ResourceTool, failure.ModeOf(err))
	require.Equal(t, session.Created, s.State())
	refused(t, s, failure.SessionClosed)
	l.fails = nil
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, session.Ready, s.State())
}

func saveTests() sessionTests {
	return sessionTests{
		"Save_WritesNothingByItself":   saveWritesNothingByItself,
		"Save_WritesTurnsInOrder":      saveWritesTurnsInOrder,
		"Save_PauseAndCloseSaveToo":    savePauseAndCloseSaveToo,
		"Save_KeepsWhatCannotBeStored": saveKeepsWhatCannotBeStored,
		"Save_ComesBehindOthers":       saveComesBehindOthers,
	}
}

// Req: LP-23, C-19
func saveWritesNothingByItself(t *testing.T, store memory.Store) {
	a, model := talker(t, agent.Config{Handlers: []hook.Handler{making()}, Instructions: "Last: {last?}. Note: {artifact.note?}"}, scripted.Say("1"), scripted.Say("2"))
	s := talk(t, a, agent.SessionConfig{Store: store, NoAutoSave: true})
	ask(t, s, "a")
	ask(t, s, "b")
	_, err := store.GetSession(t.Context(), session.Ref{Tenant: agent.DefaultTenant, Session: s.ID()})
	require.Equal(t, failure.NotFound, failure.ModeOf(err))
	// The turns see each other all the same.
	require.Equal(t, "Last: b. Note: b", model.Requests()[1].System)
	require.Equal(t, []string{"user: a", "ai: 1", "user: b"}, spoken(model.Requests()[1].Messages))
	messages, err := s.Messages(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, []string{"ai: 1", "user: b", "ai: 2"}, spoken(messages))
	require.Equal(t, 2, s.Info().Turns)
	require.EqualValues(t, 4, s.Info().Messages)
}

// Req: LP-12, LP-23, C-19
func saveWritesTurnsInOrder(t *testing.T, store memory.Store) {
	down := failure.New(failure.ResourceAPI, "test", "down")
	a, _ := talker(t, agent.Config{Handlers: []hook.Handler{making()}, Tools: []tool.Tool{lookup(t)}},
		look("x"), scripted.Say("1"), look("y"), scripted.Fail(down), scripted.Say("3"))
	s := talk(t, a, agent.SessionConfig{Store: store, NoAutoSave: true})
	require.NoError(t, s.Save(t.Context()), "with nothing to save")
	ask(t, s, "a")
	_, err := happened(t, s, agent.Input{Text: "b"})
	require.ErrorIs(t, err, down)
	require.Equal(t, session.Failed, s.State())
	_, err = happened(t, s, agent.Input{Continue: true})
	require.NoError(t, err)
	require.NoError(t, s.Save(t.Context()))
	said, info := stored(t, store, s)
	require.Equal(t, []string{
		"user: a", "ai: → lookup", "tool: found x", "ai: 1",
		"user: b", "ai: → lookup (partial)", "tool: found y (partial)", "ai: 3",
	}, said)
	require.Equal(t, session.Ready, info.State)
	require.Equal(t, 3, info.Turns)
	require.Equal(t, info, withoutClock(s.Info(), info))
	require.NoError(t, s.Save(t.Context()), "twice is once")
	again, _ := stored(t, store, s)
	require.Equal(t, said, again)
	artifacts, err := s.Artifacts(t.Context())
	require.NoError(t, err)
	require.Len(t, artifacts, 2, "b was saved twice, and is one version")
	content, _, err := agent.Remember(store, memory.Hold{Ref: session.Ref{Tenant: agent.DefaultTenant, Session: s.ID()}}, "").LoadArtifact(t.Context(), "note", 0)
	require.NoError(t, err)
	require.Equal(t, "b", string(content))
}

// withoutClock is a session with the times of another.
func withoutClock(s, other session.Session) session.Session {
	s.Created, s.LastActivity = other.Created, other.LastActivity
	return s
}

// Req: LP-9, LP-23
func savePauseAndCloseSaveToo(t *testing.T, store memory.Store) {
	for want, end := range map[session.State]func(*agent.Session, context.Context) error{
		session.Paused: (*agent.Session).Pause, session.Closed: (*agent.Session).Close,
	} {
		a, _ := talker(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"))
		s := talk(t, a, agent.SessionConfig{Store: store, NoAutoSave: true})
		ask(t, s, "a")
		require.NoError(t, end(s, t.Context()))
		said, info := stored(t, store, s)
		require.Equal(t, []string{"user: a", "ai: 1"}, said)
		require.Equal(t, want, info.State)
		again := talk(t, a, agent.SessionConfig{Store: store, NoAutoSave: true, ID: s.ID()})
		_, info = stored(t, store, s)
		require.Equal(t, want, info.State, "nothing is written")
		ask(t, again, "b")
		require.NoError(t, again.Save(t.Context()))
		said, info = stored(t, store, s)
		require.Equal(t, []string{"user: a", "ai: 1", "user: b", "ai: 2"}, said)
		require.Equal(t, session.Ready, info.State)
	}
}

func saveKeepsWhatCannotBeStored(t *testing.T, store memory.Store) {
	long := hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		return "", turn.Memory().Set(fmt.Sprintf("%0*d", memory.MaxStateKey+1, turn.Info().Turn), 1)
	})
	a, _ := talker(t, agent.Config{Handlers: []hook.Handler{long}}, scripted.Say("1"), scripted.Say("2"))
	s := talk(t, a, agent.SessionConfig{Store: store, NoAutoSave: true})
	ask(t, s, "a")
	ask(t, s, "b")
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(s.Save(t.Context())))
	said, info := stored(t, store, s)
	require.Equal(t, []string{"user: a", "ai: 1 (partial)", "user: b", "ai: 2 (partial)"}, said)
	require.Equal(t, session.Failed, info.State)
	require.NoError(t, s.Save(t.Context()))
}

// Somebody else talked meanwhile, and talks still.
func saveComesBehindOthers(t *testing.T, store memory.Store) {
	wait := make(chan struct{})
	a, _ := talker(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"), scripted.Reply{Deltas: []string{"3"}, Wait: wait})
	s := talk(t, a, agent.SessionConfig{Store: store, NoAutoSave: true})
	ask(t, s, "mine")
	other := talk(t, a, agent.SessionConfig{Store: store, ID: s.ID()})
	ask(t, other, "yours")
	for e, err := range other.Turn(t.Context(), agent.Input{Text: "and yours"}) {
		require.NoError(t, err)
		if e.Kind() == "user_input" {
			require.Equal(t, failure.SessionBusy, failure.ModeOf(s.Save(t.Context())))
			close(wait)
		}
	}
	require.NoError(t, s.Save(t.Context()))
	said, info := stored(t, store, s)
	require.Equal(t, []string{"user: yours", "ai: 2", "user: and yours", "ai: 3", "user: mine", "ai: 1"}, said)
	require.Equal(t, 3, info.Turns)
	require.Equal(t, 3, s.Info().Turns)
}

func boundTests() sessionTests {
	return sessionTests{
		"Bound_WarnsOncePerCrossing":      boundWarnsOncePerCrossing,
		"Bound_CompactsBetweenTurns":      boundCompactsBetweenTurns,
		"Bound_CompactsWhatIsSaved":       boundCompactsWhatIsSaved,
		"Bound_ACompactionPartsNoRound":   boundACompactionPartsNoRound,
		"Bound_AnotherObjectDoesNotAgain": boundAnotherObjectDoesNotAgain,
	}
}

func warned(all []event.Event) (reasons []string) {
	for _, e := range all {
		if w, ok := e.Payload.(event.Warning); ok {
			reasons = append(reasons, w.Reason)
		}
	}
	return reasons
}

// Req: LP-21, C-20
func boundWarnsOncePerCrossing(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		a := build(t, agent.Config{Model: echo{}})
		s := talk(t, a, agent.SessionConfig{Store: store, MaxMessages: 4, NoAutoSave: noAutoSave})
		var warnings [][]string
		turn := func(text string) {
			all, err := happened(t, s, agent.Input{Text: text})
			require.NoError(t, err)
			warnings = append(warnings, warned(all))
			for i, e := range all[1:] {
				require.Greater(t, e.Sequence, all[i].Sequence, "each event has its number")
			}
		}
		for i := range 5 {
			turn(fmt.Sprint(i))
		}
		require.Equal(t, [][]string{nil, nil, {agent.ReasonSessionLong}, nil, nil}, warnings)
		_, err := s.Compact(t.Context(), 2, "")
		require.NoError(t, err)
		require.EqualValues(t, 2, s.Info().Messages)
		warnings = nil
		for i := range 3 {
			turn(fmt.Sprint(i))
		}
		require.Equal(t, [][]string{nil, {agent.ReasonSessionLong}, nil}, warnings)
	}
}

// Req: LP-21, LP-26, C-20
func boundCompactsBetweenTurns(t *testing.T, store memory.Store) {
	a := build(t, agent.Config{Model: echo{}})
	s := talk(t, a, agent.SessionConfig{Store: store, MaxMessages: 4, AutoCompact: true})
	for i := range 3 {
		all, err := happened(t, s, agent.Input{Text: fmt.Sprint(i)})
		require.NoError(t, err)
		require.Empty(t, warned(all))
	}
	said, info := stored(t, store, s)
	require.Equal(t, []string{"summary", "user: 2", "ai: echo 2"}, said)
	require.EqualValues(t, 2, info.Messages)
	require.EqualValues(t, 2, s.Info().Messages)
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.Contains(t, messages[0].Text, "echo 1")
	ask(t, s, "3")
	said, _ = stored(t, store, s)
	require.Len(t, said, 5)
}

func boundCompactsWhatIsSaved(t *testing.T, store memory.Store) {
	a := build(t, agent.Config{Model: echo{}})
	s := talk(t, a, agent.SessionConfig{Store: store, MaxMessages: 4, AutoCompact: true, NoAutoSave: true})
	for i := range 3 {
		ask(t, s, fmt.Sprint(i))
	}
	require.EqualValues(t, 6, s.Info().Messages, "nothing is written")
	require.NoError(t, s.Pause(t.Context()))
	said, _ := stored(t, store, s)
	require.Equal(t, []string{"summary", "user: 2", "ai: echo 2"}, said)
	require.EqualValues(t, 2, s.Info().Messages)
}

func boundACompactionPartsNoRound(t *testing.T, store memory.Store) {
	a, _ := talker(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, look("a", "b"), scripted.Say("AB"))
	s := talk(t, a, agent.SessionConfig{Store: store, MaxMessages: 4, AutoCompact: true})
	ask(t, s, "x")
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
}

func boundAnotherObjectDoesNotAgain(t *testing.T, store memory.Store) {
	a := build(t, agent.Config{Model: echo{}})
	c := agent.SessionConfig{Store: store, MaxMessages: 2}
	s := talk(t, a, c)
	ask(t, s, "a")
	all, err := happened(t, s, agent.Input{Text: "b"})
	require.NoError(t, err)
	require.Equal(t, []string{agent.ReasonSessionLong}, warned(all))
	c.ID = s.ID()
	all, err = happened(t, talk(t, a, c), agent.Input{Text: "c"})
	require.NoError(t, err)
	require.Empty(t, warned(all))
}
