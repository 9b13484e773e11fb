package memorytest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func windowTests() tests {
	return tests{
		"Window_IsLimitedByTokens":           windowIsLimitedByTokens,
		"Window_BeginsOutsideToolRounds":     windowBeginsOutsideToolRounds,
		"Window_BeginsWithTheSummary":        windowBeginsWithTheSummary,
		"Window_OfATakeoverIsThatOfTheBegin": windowOfATakeoverIsThatOfTheBegin,
	}
}

// windowIsLimitedByTokens counts a token for four bytes.
// Req: LP-25
func windowIsLimitedByTokens(t *testing.T, store memory.Store) {
	ref := fresh()
	for i := range 4 {
		converse(t, store, ref, fmt.Sprintf("t%d", i), "12345678", "12345678") // two tokens each
	}
	for tokens, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 100: 9, 0: 9} {
		ask := asking(ref, "last", "12345678")
		ask.WindowTokens = tokens
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, begun.History, want, "%d tokens", tokens)
		require.EqualValues(t, 9, begun.History[want-1].Sequence)
		release(t, store, ref, begun.Turn)
	}
}

// roundOf is a tool call with its results.
func roundOf(results int) []conversation.Message {
	call := conversation.Assistant("echo", "")
	var answers []conversation.Message
	for i := range results {
		id := fmt.Sprintf("call-%d", i)
		call.ToolCalls = append(call.ToolCalls, conversation.ToolCall{ID: id, Name: "search", Arguments: `{"q":"x"}`})
		answers = append(answers, conversation.Message{Role: conversation.RoleTool, Text: "found", ToolCallID: id})
	}
	return append([]conversation.Message{call}, answers...)
}

// Req: LP-26
func windowBeginsOutsideToolRounds(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "look it up")
	c := answering(ref, turn, "it is so", session.OutcomeCompleted)
	c.Messages = append(roundOf(2), c.Messages...) // 2, 3 and 4; the answer is 5
	commit(t, store, c)
	for window, first := range map[int]int64{1: 6, 2: 5, 3: 5, 4: 5, 5: 2, 6: 1} {
		ask := asking(ref, "t2", "thanks")
		ask.Window = window
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Equal(t, first, begun.History[0].Sequence, "window of %d", window)
		release(t, store, ref, begun.Turn)
	}
}

func windowBeginsWithTheSummary(t *testing.T, store memory.Store) {
	ref := fresh()
	for i := range 3 {
		converse(t, store, ref, fmt.Sprintf("t%d", i), "question", "answer")
	}
	compact(t, store, memory.Compact{Ref: ref, Keep: 2, Summary: "They talked."})
	summary := conversation.Message{Sequence: 4, Role: conversation.RoleSummary, Text: "They talked."}
	for window, want := range map[int]int{3: 3, 4: 4, 100: 4} {
		ask := asking(ref, "last", "more")
		ask.Window = window
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, begun.History, want)
		if want == 4 {
			requireSame(t, summary, begun.History[0])
		} else {
			require.EqualValues(t, 5, begun.History[0].Sequence)
		}
		release(t, store, ref, begun.Turn)
	}
}

func windowOfATakeoverIsThatOfTheBegin(t *testing.T, store memory.Store) {
	ref := fresh()
	converse(t, store, ref, "t0", "before", "yes")
	ask := asking(ref, "t1", "hello")
	ask.Window = 2
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	commit(t, store, answering(ref, first.Turn, "one", session.OutcomeOpen))
	release(t, store, ref, first.Turn)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Greater(t, again.Turn.Epoch, first.Turn.Epoch)
	requireSame(t, first.History, again.History)
}
