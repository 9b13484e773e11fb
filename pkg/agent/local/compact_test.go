package local_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func compactTests() sessionTests {
	return sessionTests{
		"Compact_WarnsOncePerCrossing":     compactWarnsOncePerCrossing,
		"Compact_RunsBetweenTurns":         compactRunsBetweenTurns,
		"Compact_RunsAtSave":               compactRunsAtSave,
		"Compact_ModelWritesTheSummary":    compactModelWritesTheSummary,
		"Compact_SplitsNoRound":            compactSplitsNoRound,
		"Compact_WarnsOnceOverAllSessions": compactWarnsOnceOverAllSessions,
	}
}

func warningReasons(all []event.Event) (reasons []string) {
	for _, e := range all {
		if w, ok := e.Payload.(event.Warning); ok {
			reasons = append(reasons, w.Reason)
		}
	}
	return reasons
}

// Req: LP-21, C-20
func compactWarnsOncePerCrossing(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		a := build(t, agent.Config{Model: echoModel{}})
		s := openSession(t, a, local.Config{Store: store, MaxMessages: 4, NoAutoSave: noAutoSave})
		var warnings [][]string
		turn := func(text string) {
			all, err := runTurn(t, s, local.Input{Text: text})
			require.NoError(t, err)
			warnings = append(warnings, warningReasons(all))
			for i, e := range all[1:] {
				require.Greater(t, e.Sequence, all[i].Sequence, "each event has its number")
			}
		}
		for i := range 5 {
			turn(fmt.Sprint(i))
		}
		require.Equal(t, [][]string{nil, nil, {local.ReasonSessionLong}, nil, nil}, warnings)
		_, err := s.Compact(t.Context(), 2, "")
		require.NoError(t, err)
		require.EqualValues(t, 2, s.Info().Size.Messages)
		warnings = nil
		for i := range 3 {
			turn(fmt.Sprint(i))
		}
		require.Equal(t, [][]string{nil, {local.ReasonSessionLong}, nil}, warnings)
	}
}

// Req: LP-21, LP-26, C-20
func compactRunsBetweenTurns(t *testing.T, store memory.Store) {
	a := build(t, agent.Config{Model: echoModel{}})
	s := openSession(t, a, local.Config{Store: store, MaxMessages: 4, AutoCompact: true})
	for i := range 3 {
		all, err := runTurn(t, s, local.Input{Text: fmt.Sprint(i)})
		require.NoError(t, err)
		require.Empty(t, warningReasons(all))
	}
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{"summary", "user: 2", "ai: echo 2"}, said)
	require.EqualValues(t, 2, info.Size.Messages)
	require.EqualValues(t, 2, s.Info().Size.Messages)
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.Contains(t, messages[0].Text, "echo 1")
	ask(t, s, "3")
	said, _ = storedMessages(t, store, s)
	require.Len(t, said, 5)
}

// Req: LP-26
func compactModelWritesTheSummary(t *testing.T, store memory.Store) {
	for name, tc := range map[string]struct {
		reply scripted.Reply
		want  string
	}{
		"a model":                         {scripted.Say("They counted."), "They counted."},
		"a rule, because the model fails": {scripted.Reply{Err: errors.New("no summary")}, "Messages up to "},
	} {
		t.Run(name, func(t *testing.T) {
			a, model := scriptedAgent(t, agent.Config{}, scripted.Say("A"), scripted.Say("B"), tc.reply)
			s := openSession(t, a, local.Config{Store: store, MaxMessages: 3, AutoCompact: true, SummaryByModel: true})
			ask(t, s, "one")
			all, err := runTurn(t, s, local.Input{Text: "two"})
			require.NoError(t, err)
			require.Empty(t, warningReasons(all))
			messages, err := s.Messages(t.Context(), 0)
			require.NoError(t, err)
			require.Len(t, messages, 2)
			require.Contains(t, messages[0].Text, tc.want)
			asked := model.Requests()[2].Messages[0].Text
			require.Contains(t, asked, "one")
			require.NotContains(t, asked, `"B"`, "half of the limit stays")
		})
	}
	_, err := local.Open(t.Context(), build(t, agent.Config{Model: echoModel{}}), local.Config{AutoCompact: true, Strategy: "magic"})
	require.ErrorContains(t, err, "strategy")
}

func compactRunsAtSave(t *testing.T, store memory.Store) {
	a := build(t, agent.Config{Model: echoModel{}})
	s := openSession(t, a, local.Config{Store: store, MaxMessages: 4, AutoCompact: true, NoAutoSave: true})
	for i := range 3 {
		ask(t, s, fmt.Sprint(i))
	}
	require.EqualValues(t, 6, s.Info().Size.Messages, "nothing is written")
	require.NoError(t, s.Pause(t.Context()))
	said, _ := storedMessages(t, store, s)
	require.Equal(t, []string{"summary", "user: 2", "ai: echo 2"}, said)
	require.EqualValues(t, 2, s.Info().Size.Messages)
}

func compactSplitsNoRound(t *testing.T, store memory.Store) {
	a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("a", "b"), scripted.Say("AB"))
	s := openSession(t, a, local.Config{Store: store, MaxMessages: 4, AutoCompact: true})
	ask(t, s, "x")
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
}

func compactWarnsOnceOverAllSessions(t *testing.T, store memory.Store) {
	a := build(t, agent.Config{Model: echoModel{}})
	c := local.Config{Store: store, MaxMessages: 2}
	s := openSession(t, a, c)
	ask(t, s, "a")
	all, err := runTurn(t, s, local.Input{Text: "b"})
	require.NoError(t, err)
	require.Equal(t, []string{local.ReasonSessionLong}, warningReasons(all))
	c.ID = s.ID()
	all, err = runTurn(t, openSession(t, a, c), local.Input{Text: "c"})
	require.NoError(t, err)
	require.Empty(t, warningReasons(all))
}
