package turns

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func failTests() fixture.Tests {
	return fixture.Tests{
		"Fail_ClosesTheTurn":                      failClosesTheTurn,
		"Fail_CancelledTurnLeavesTheSessionReady": failCancelledTurnLeavesTheSessionReady,
		"Fail_ReturnsATurnThatIsAlreadyClosed":    failReturnsATurnThatIsAlreadyClosed,
		"Fail_KeepsThePartialReply":               failKeepsThePartialReply,
		"Fail_PartialReplyOmitsToolResults":       failPartialReplyOmitsToolResults,
		"Fail_WorksInAFullSession":                failWorksInAFullSession,
		"Fail_RejectsUnknownTurn":                 failRejectsUnknownTurn,
	}
}

// Req: C-2
func failClosesTheTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	f := fixture.NewFailRequest(ref, turn, session.OutcomeFailed)
	failed, err := store.FailTurn(t.Context(), f)
	require.NoError(t, err)
	want := turn
	want.Outcome, want.Failure = session.OutcomeFailed, f.Failure
	fixture.RequireEqual(t, want, failed)
	s := fixture.GetSession(t, store, ref)
	require.Equal(t, session.Failed, s.State)
	require.Empty(t, s.OpenTurn)

	// Failing the turn again, even for another reason, returns the first outcome.
	again, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeCancelled))
	require.NoError(t, err)
	fixture.RequireEqual(t, want, again)
	fixture.RequireEqual(t, want, fixture.RepeatBeginTurn(t, store, ref))

	// The session accepts the next turn. The user message of the failed turn stays in the history.
	fixture.RunTurn(t, store, ref, "t2", "still there?", "yes")
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
	require.Len(t, fixture.LoadHistory(t, store, ref), 3)
}

func failCancelledTurnLeavesTheSessionReady(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	closed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeCancelled))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCancelled, closed.Outcome)
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
	_, err = store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, "too late", session.OutcomeCompleted))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "outcome", string(session.OutcomeCancelled))
}

func failReturnsATurnThatIsAlreadyClosed(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	closed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, closed.Outcome)
	require.Nil(t, closed.Failure)
	require.Equal(t, "hi", closed.Steps[0].Text)
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
}

func failRejectsUnknownTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, session.Turn{ID: "t1", Epoch: 1}, session.OutcomeFailed))
	fixture.RequireMode(t, err, failure.NotFound, "turn_id", "t1")
}

// failKeepsThePartialReply checks that the text written before the failure is stored as a partial message.
// Req: LP-17
func failKeepsThePartialReply(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	h := fixture.LeaseOf(ref, turn)
	fixture.RecordEntries(t, store, h, 1, fixture.ModelRounds(1)...)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "one", session.OutcomeOpen))
	fixture.RecordEntries(t, store, h, 2, fixture.ModelRounds(2)...)
	failed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	require.EqualValues(t, 3, failed.Sequence)

	said := fixture.LoadHistory(t, store, ref)
	fixture.RequireEqual(t, conversation.Message{
		Sequence: 3, Role: conversation.RoleAssistant, Author: "echo", Turn: 1, Partial: true,
		Text: "looking at page 0\n\nlooking at page 1",
	}, said[2])
	s := fixture.GetSession(t, store, ref)
	require.EqualValues(t, 3, s.Size.Messages)
	require.EqualValues(t, 3, s.LastSequence)
	fixture.RequireEqual(t, failed, fixture.RepeatBeginTurn(t, store, ref))

	// Failing the turn again adds nothing, and the next turn sees the partial message.
	_, err = store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t2", "go on"))
	require.NoError(t, err)
	require.Len(t, begun.History, 4)
	require.True(t, begun.History[2].Partial)
}

func failPartialReplyOmitsToolResults(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, fixture.ModelRounds(1)[1:]...)
	failed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeCancelled))
	require.NoError(t, err)
	require.EqualValues(t, 1, failed.Sequence)
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

// failWorksInAFullSession checks that a turn can be closed in a full session. The partial reply is dropped.
func failWorksInAFullSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c := fixture.NewCommit(ref, turn, "a", session.OutcomeOpen)
	for range fixture.MaxMessages - 2 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a"))
	}
	fixture.CommitStep(t, store, c)
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 2, fixture.ModelRounds(1)...)
	failed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeFailed, failed.Outcome)
	require.EqualValues(t, fixture.MaxMessages, fixture.GetSession(t, store, ref).Size.Messages)
}
