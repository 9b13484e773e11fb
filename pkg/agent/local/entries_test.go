package local_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// A session keeps the latest 1,000 trace entries of its turns, saved or not, and none after it is cleared.
//
// Req: CO-68
func TestSession_KeepsTheLatestEntries(t *testing.T) {
	for _, unsaved := range []bool{false, true} {
		var seen []event.Event
		read := hook.AfterUserInput(func(ctx context.Context, turn *hook.Turn) (err error) {
			require.Len(t, turn.Entries(), 1, "the running turn has entries of its own")
			seen, err = turn.Memory().EarlierEntries(ctx, 0)
			return err
		})
		var replies []scripted.Reply
		for range 400 {
			replies = append(replies, scripted.Say("Yes."))
		}
		a, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{read}}, replies...)
		s := openSession(t, a, local.Config{NoAutoSave: unsaved})
		ask := func(n int) {
			_, err := s.Ask(t.Context(), fmt.Sprint(n, strings.Repeat("?", 1000)))
			require.NoError(t, err)
		}
		ask(1)
		require.Empty(t, seen)
		ask(2)
		var kinds []string
		for _, e := range seen {
			kinds = append(kinds, e.Kind())
		}
		require.Equal(t, []string{"user_input", "llm_call", "turn_result"}, kinds)
		require.Len(t, seen[0].Payload.(event.UserInput).Prompt, 200+len("…")-1)
		for n := range 340 {
			ask(n + 3)
		}
		require.Len(t, seen, execution.MaxEntries)
		require.Equal(t, 341, seen[execution.MaxEntries-1].Payload.(event.TurnResult).Turn)
		require.NoError(t, s.Clear(t.Context()))
		ask(400)
		require.Empty(t, seen)
	}
}

// Entries are bounded in bytes, too, as in a mesh.
func TestSession_EntriesAreBounded(t *testing.T) {
	var seen []event.Event
	think := hook.AfterUserInput(func(ctx context.Context, turn *hook.Turn) (err error) {
		seen, err = turn.Memory().EarlierEntries(ctx, 0)
		for range 10 {
			turn.Think(event.Plan, strings.Repeat("a", 100<<10))
		}
		return err
	})
	a, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{think}}, scripted.Say("1"), scripted.Say("2"), scripted.Say("3"), scripted.Say("4"), scripted.Say("5"))
	s := openSession(t, a, local.Config{})
	for range 5 {
		_, err := s.Ask(t.Context(), "Go")
		require.NoError(t, err)
	}
	bytes := 0
	for _, e := range seen {
		if p, ok := e.Payload.(event.Thinking); ok {
			bytes += len(p.Text)
		}
	}
	require.LessOrEqual(t, bytes, memory.MaxWindowBytes)
	require.Greater(t, bytes, memory.MaxWindowBytes-300<<10)
}
