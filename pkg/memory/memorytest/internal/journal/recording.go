package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// RecordingTests returns the tests for stores that keep journals after the commit.
func RecordingTests() fixture.Tests {
	return fixture.Tests{
		"Recording_SurvivesTheCommit":         recordingSurvivesTheCommit,
		"Recording_IsCompleteAfterTheCommit":  recordingIsCompleteAfterTheCommit,
		"Recording_DoesNotChangeTheCommit":    recordingDoesNotChangeTheCommit,
		"Recording_SurvivesAFailedTurn":       recordingSurvivesAFailedTurn,
		"Recording_HasTheLatestInput":         recordingHasTheLatestInput,
		"Recording_IsNotLoadedByASuccessor":   recordingIsNotLoadedByASuccessor,
		"Recording_OfARunningStepIsEmpty":     recordingOfARunningStepIsEmpty,
		"Recording_ContinuesWithWaitingCalls": recordingContinuesWithWaitingCalls,
		"Recording_IsReadInPages":             recordingIsReadInPages,
		"Recording_IsDeletedWithTheSession":   recordingIsDeletedWithTheSession,
		"Recording_IsDeletedWithItsMessages":  recordingIsDeletedWithItsMessages,
		"Recording_IsDeletedByAClear":         recordingIsDeletedByAClear,
		"Recording_OfAnUnknownTurnIsNotFound": recordingOfAnUnknownTurnIsNotFound,
	}
}

// newInputEntry returns the journal entry with the input of a step. The store does not decode the input.
func newInputEntry(what string) execution.Entry {
	return execution.Entry{Phase: execution.Intent, StepInput: []byte(what)}
}

// loadRecording reads all pages of the kept journal of a finished step.
func loadRecording(t *testing.T, store memory.Store, ref session.Ref, turnID string, step int) []execution.Entry {
	t.Helper()
	var all []execution.Entry
	for from := 0; ; from = all[len(all)-1].Number + 1 {
		page, err := store.Recording(t.Context(), ref, turnID, step, from)
		require.NoError(t, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

func beginRecordedTurn(t *testing.T, store memory.Store, ref session.Ref, turnID string) session.Turn {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, turnID, "hello"))
	require.NoError(t, err)
	require.True(t, begun.KeepsJournals, "who begins the turn has to know")
	return begun.Turn
}

func recordingSurvivesTheCommit(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	h, all := fixture.LeaseOf(ref, turn), fixture.ModelRounds(12)
	fixture.RecordEntries(t, store, h, 1, all...)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "one", session.OutcomeOpen))
	fixture.RequireEqual(t, all, loadRecording(t, store, ref, "t1", 1))
	fixture.RecordEntries(t, store, h, 2, fixture.ModelRounds(1)...)
	two := fixture.NewCommit(ref, turn, "two", session.OutcomeCompleted)
	two.Base, two.Result.Step = turn.Sequence+1, 2
	fixture.CommitStep(t, store, two)
	fixture.RequireEqual(t, all, loadRecording(t, store, ref, "t1", 1))
	fixture.RequireEqual(t, fixture.ModelRounds(1), loadRecording(t, store, ref, "t1", 2))
	require.Empty(t, loadRecording(t, store, ref, "t1", 3))
}

func recordingIsCompleteAfterTheCommit(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	all := append([]execution.Entry{newInputEntry("this")}, fixture.ModelRounds(3)...)
	all[1].Digest, all[2].Arguments = "s:1 m:2 t:3", `{"page":0}`
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, all[1:4]...)
	c := fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted)
	c.Journal = append(all[:1:1], all[3:]...) // one of them is stored already
	fixture.CommitStep(t, store, c)
	fixture.RequireEqual(t, all, loadRecording(t, store, ref, "t1", 1))
}

func recordingDoesNotChangeTheCommit(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	c := fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted)
	c.Journal = fixture.ModelRounds(1)
	last := fixture.CommitStep(t, store, c)
	c.Journal = nil
	require.Equal(t, last, fixture.CommitStep(t, store, c), "the same commit again")
	fixture.RequireEqual(t, fixture.ModelRounds(1), loadRecording(t, store, ref, "t1", 1))
}

func recordingSurvivesAFailedTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, fixture.ModelRounds(2)...)
	_, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	fixture.RequireEqual(t, fixture.ModelRounds(2), loadRecording(t, store, ref, "t1", 1))
}

func recordingHasTheLatestInput(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, newInputEntry("this"), fixture.ModelRounds(1)[0])
	next := fixture.TakeOver(t, store, ref, turn)
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, next), 1, newInputEntry("that"), fixture.ModelRounds(1)[1])
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, next), 1, newInputEntry("that"))
	fixture.CommitStep(t, store, fixture.NewCommit(ref, next, "one", session.OutcomeCompleted))
	fixture.RequireEqual(t, append([]execution.Entry{newInputEntry("that")}, fixture.ModelRounds(1)[:2]...), loadRecording(t, store, ref, "t1", 1))
}

func recordingIsNotLoadedByASuccessor(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	h := fixture.LeaseOf(ref, turn)
	fixture.RecordEntries(t, store, h, 1, append([]execution.Entry{newInputEntry("this")}, fixture.ModelRounds(1)...)...)
	fixture.RequireEqual(t, fixture.ModelRounds(1), fixture.LoadJournal(t, store, h, 1))
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "one", session.OutcomeOpen))
	fixture.RequireMode(t, store.Record(t.Context(), h, 1, fixture.ModelRounds(1)), failure.TurnNotOpen)
}

func recordingOfARunningStepIsEmpty(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, beginRecordedTurn(t, store, ref, "t1")), 1, fixture.ModelRounds(1)...)
	require.Empty(t, loadRecording(t, store, ref, "t1", 1))
}

// The journal of a step with waiting calls becomes part of the step that continues with the answers.
func recordingContinuesWithWaitingCalls(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, append([]execution.Entry{newInputEntry("this")}, fixture.ModelRounds(1)...)...)
	c := fixture.NewCommit(ref, turn, "may I?", session.OutcomeInputRequired)
	c.Result.InputRequired, c.Result.Pending = true, []execution.Pending{{ID: "1-1-4", Tool: "send_mail"}}
	fixture.CommitStep(t, store, c)
	fixture.RequireEqual(t, append([]execution.Entry{newInputEntry("this")}, fixture.ModelRounds(1)...), loadRecording(t, store, ref, "t1", 1))

	b := fixture.NewBegin(ref, "t2", "")
	b.Predecessor.Continues, b.Message = "t1", b.Message.WithoutData()
	b.Message.Role, b.Message.Text = "", ""
	begun, err := store.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, loadRecording(t, store, ref, "t1", 1))
	c = fixture.NewCommit(ref, begun.Turn, "done", session.OutcomeCompleted)
	c.Journal = append([]execution.Entry{newInputEntry("that")}, fixture.ModelRounds(2)[3:]...)
	fixture.CommitStep(t, store, c)
	fixture.RequireEqual(t, append([]execution.Entry{newInputEntry("that")}, fixture.ModelRounds(2)...), loadRecording(t, store, ref, "t2", 1))
}

func recordingIsReadInPages(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	all := fixture.LongEntries(20, 250<<10)
	for _, e := range all {
		fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, e)
	}
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted))
	page, err := store.Recording(t.Context(), ref, "t1", 1, 0)
	require.NoError(t, err)
	require.Less(t, len(page), len(all))
	fixture.RequireEqual(t, all, loadRecording(t, store, ref, "t1", 1))
}

func recordingIsDeletedWithTheSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, fixture.ModelRounds(1)...)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted))
	fixture.DeleteSession(t, store, ref)
	_, err := store.Recording(t.Context(), ref, "t1", 1, 0)
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func recordingIsDeletedByAClear(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := beginRecordedTurn(t, store, ref, "t1")
	for step := 1; step <= 2; step++ {
		fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), step, fixture.ModelRounds(1)...)
		c := fixture.NewCommit(ref, turn, "one", session.OutcomeOpen)
		c.Base, c.Result.Step = turn.Sequence+int64(step)-1, step
		if step == 2 {
			c.Outcome = session.OutcomeCompleted
		}
		fixture.CommitStep(t, store, c)
	}
	require.NoError(t, store.ClearSession(t.Context(), ref))
	require.Empty(t, loadRecording(t, store, ref, "t1", 1))
	require.Empty(t, loadRecording(t, store, ref, "t1", 2))
}

func recordingIsDeletedWithItsMessages(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for _, id := range []string{"t1", "t2"} {
		c := fixture.NewCommit(ref, beginRecordedTurn(t, store, ref, id), "one", session.OutcomeCompleted)
		c.Journal = fixture.ModelRounds(1)
		fixture.CommitStep(t, store, c)
	}
	_, err := store.CompactSession(t.Context(), memory.Compact{Ref: ref, Keep: 2})
	require.NoError(t, err)
	require.Empty(t, loadRecording(t, store, ref, "t1", 1))
	fixture.RequireEqual(t, fixture.ModelRounds(1), loadRecording(t, store, ref, "t2", 1))
}

func recordingOfAnUnknownTurnIsNotFound(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.Recording(t.Context(), ref, "t1", 1, 0)
	fixture.RequireMode(t, err, failure.NotFound)
	beginRecordedTurn(t, store, ref, "t1")
	_, err = store.Recording(t.Context(), ref, "t2", 1, 0)
	fixture.RequireMode(t, err, failure.NotFound)
}
