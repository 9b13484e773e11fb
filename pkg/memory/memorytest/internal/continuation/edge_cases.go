package continuation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// continuationEdgeCaseTests returns the tests of how a continuing turn ends, and of turns that continue without a journal,
// after their messages were removed, or in a full session.
func continuationEdgeCaseTests() fixture.Tests {
	return fixture.Tests{
		"Continue_FailedTurnKeepsThePartialReply":      continueFailedTurnKeepsThePartialReply,
		"Continue_AbandonedTurnIsEvicted":              continueAbandonedTurnIsEvicted,
		"Continue_WorksWithoutAJournal":                continueWorksWithoutAJournal,
		"Continue_WorksAfterACompaction":               continueWorksAfterACompaction,
		"Continue_WithoutMessageWorksAfterACompaction": continueWithoutMessageWorksAfterACompaction,
		"Continue_WorksInAFullSession":                 continueWorksInAFullSession,
	}
}

func continueFailedTurnKeepsThePartialReply(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	next := continueTurn(t, store, ref, turn, "t2")
	failed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, next, session.OutcomeFailed))
	require.NoError(t, err)
	require.EqualValues(t, 6, failed.Sequence)
	require.Equal(t, "t1", failed.Continues)
	fixture.RequireEqual(t, fixture.NewAnswers(), failed.Answers)
	told := fixture.LoadHistory(t, store, ref)
	fixture.RequireEqual(t, conversation.Message{
		Sequence: 6, Role: conversation.RoleAssistant, Author: "echo", Turn: 3, Partial: true,
		Text: "looking at page 0\n\nlooking at page 1",
	}, told[5])
	s := fixture.GetSession(t, store, ref)
	require.Equal(t, session.Failed, s.State)
	require.Empty(t, s.WaitingTurn)
	fixture.RunTurn(t, store, ref, "t3", "still there?", "yes")
	require.Len(t, fixture.LoadHistory(t, store, ref), 8)
}

// continueAbandonedTurnIsEvicted abandons a turn that continues another one. The next new turn of the session
// evicts the abandoned turn.
func continueAbandonedTurnIsEvicted(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	next := continueTurn(t, store, ref, turn, "t2")
	fixture.ReleaseTurn(t, store, ref, next)
	last := fixture.BeginTurn(t, store, ref, "t3", "and me")
	require.EqualValues(t, 7, last.Sequence)
	require.Empty(t, last.Steps)
	told := fixture.LoadHistory(t, store, ref)
	require.True(t, told[5].Partial)
	require.Equal(t, 3, told[5].Turn)
	gone, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	require.NoError(t, err)
	require.Equal(t, memory.StatusClosed, gone.Status)
	require.Equal(t, session.OutcomeFailed, gone.Turn.Outcome)
	require.Len(t, gone.Turn.Steps, 1)
	fixture.RequireEqual(t, fixture.NewAnswers(), gone.Turn.Answers)
	require.Empty(t, fixture.LoadJournal(t, store, fixture.LeaseOf(ref, last), 2))
}

// continueWorksWithoutAJournal continues a step that recorded nothing.
func continueWorksWithoutAJournal(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, turn, 1))
	next := continueTurn(t, store, ref, turn, "t2")
	require.Empty(t, next.Steps)
	require.Equal(t, 2, next.Attempt)
	h := fixture.LeaseOf(ref, next)
	require.Empty(t, fixture.LoadJournal(t, store, h, 1))
	fixture.RecordEntries(t, store, h, 1, fixture.ModelRounds(1)...)
	fixture.RequireEqual(t, fixture.ModelRounds(1), fixture.LoadJournal(t, store, h, 1))
	fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, next, 1))
	fixture.RequireEqual(t, fixture.ModelRounds(1), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, continueTurn(t, store, ref, next, "t3")), 1))
}

// continueWorksAfterACompaction checks that the window has the summary in place of the removed messages. A
// compaction never removes the message of the waiting turn, however few messages it keeps.
func continueWorksAfterACompaction(t *testing.T, store memory.Store) {
	for keep, gone := range map[int]int64{1: 2, 2: 2, 3: 2, 4: 1, 5: 0} {
		ref, turn := newWaitingTurn(t, store)
		c := memory.Compact{Ref: ref, Keep: keep, Summary: "They talked."}
		require.Equal(t, gone, fixture.CompactSession(t, store, c).Messages, "keep %d", keep)
		require.Zero(t, fixture.CompactSession(t, store, c), "keep %d", keep)
		want := [][]string{
			{"1 hello", "2 hi", "3 read on"},
			{"1 They talked.", "2 hi", "3 read on"},
			{"2 They talked.", "3 read on"},
		}
		ask := fixture.NewContinuation(ref, turn, "t2")
		var begun memory.BeginResult
		for range 2 {
			var err error
			begun, err = store.BeginTurn(t.Context(), ask)
			require.NoError(t, err)
			require.Equal(t, want[gone], messageTexts(begun.History), "keep %d", keep)
			require.EqualValues(t, 5, begun.Turn.Sequence)
		}

		// If the continuing turn waits again, a compaction keeps the message too.
		fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, begun.Turn, 2))
		c.Keep = 1
		require.Equal(t, 2-gone, fixture.CompactSession(t, store, c).Messages, "keep %d", keep)
		begun, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, begun.Turn, "t3"))
		require.NoError(t, err)
		require.Equal(t, want[2], messageTexts(begun.History), "keep %d", keep)
		fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, begun.Turn, 2))

		// The rest is unchanged.
		fixture.RunTurn(t, store, ref, "t4", "never mind", "well")
		require.EqualValues(t, 8, fixture.CompactSession(t, store, c).Last)
	}
}

// continueWithoutMessageWorksAfterACompaction continues a turn that began without a message. The compaction keeps
// the last message, or the last tool round, before that turn.
func continueWithoutMessageWorksAfterACompaction(t *testing.T, store memory.Store) {
	for _, results := range []int{0, 2} {
		ref := fixture.NewRef()
		fixture.RunTurn(t, store, ref, "t0", "hello", "hi")
		turn := fixture.BeginTurn(t, store, ref, "t1", "look it up")
		c := fixture.NewCommit(ref, turn, "it is so", session.OutcomeCompleted)
		if results > 0 {
			c.Messages = fixture.ToolRound(results)
		}
		fixture.CommitStep(t, store, c)
		begun, err := store.BeginTurn(t.Context(), fixture.NewBeginWithoutMessage(ref, "t2"))
		require.NoError(t, err)
		fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, begun.Turn, 1))
		require.EqualValues(t, 3, fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 1, Summary: "They talked."}).Messages)
		next, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, begun.Turn, "t3"))
		require.NoError(t, err)
		require.Equal(t, "3 They talked.", messageTexts(next.History)[0])
		fixture.RequireEqual(t, begun.History[3:], next.History[1:])
	}
}

func continueWorksInAFullSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, newInterruptedJournal()...)
	c := fixture.NewWaitingCommit(ref, turn, 1)
	for len(c.Messages) < fixture.MaxMessages-1 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a"))
	}
	fixture.CommitStep(t, store, c)
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t2", "never mind"))
	fixture.RequireMode(t, err, failure.SessionFull)
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).WaitingTurn)
	next := continueTurn(t, store, ref, turn, "t2")
	fixture.RequireEqual(t, newInterruptedJournal(), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, next), 1))
	failed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, next, session.OutcomeFailed))
	require.NoError(t, err)
	require.EqualValues(t, fixture.MaxMessages, failed.Sequence, "there is no room for what it had said")
}
