package memorytest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Kept is for how long the stores of RunRecorded keep the journal of a step behind it.
const Kept = time.Hour

func recordingTests() tests {
	return tests{
		"Recording_OutlivesTheCommit":          recordingOutlivesTheCommit,
		"Recording_IsWholeWithTheCommit":       recordingIsWholeWithTheCommit,
		"Recording_IsNoPartOfTheCommit":        recordingIsNoPartOfTheCommit,
		"Recording_OutlivesAFailure":           recordingOutlivesAFailure,
		"Recording_HasWhatWasGivenLast":        recordingHasWhatWasGivenLast,
		"Recording_IsNotForASuccessor":         recordingIsNotForASuccessor,
		"Recording_OfARunningStepIsEmpty":      recordingOfARunningStepIsEmpty,
		"Recording_GoesOnWithTheCallsThatWait": recordingGoesOnWithTheCallsThatWait,
		"Recording_Pages":                      recordingPages,
		"Recording_EndsWithTheSession":         recordingEndsWithTheSession,
		"Recording_EndsWithItsMessages":        recordingEndsWithItsMessages,
		"Recording_EndsWithClear":              recordingEndsWithClear,
		"Recording_OfNobodyIsNotFound":         recordingOfNobodyIsNotFound,
	}
}

// given is what a step was given, as somebody else encodes it.
func given(what string) execution.Entry {
	return execution.Entry{Phase: execution.Intent, Given: []byte(what)}
}

// recording reads all pages of a step that is over.
func recording(t *testing.T, store memory.Store, ref session.Ref, turnID string, step int) []execution.Entry {
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

func beginRecorded(t *testing.T, store memory.Store, ref session.Ref, turnID string) session.Turn {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), asking(ref, turnID, "hello"))
	require.NoError(t, err)
	require.True(t, begun.Recorded, "who begins the turn has to know")
	return begun.Turn
}

func recordingOutlivesTheCommit(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	h, all := holding(ref, turn), rounds(12)
	record(t, store, h, 1, all...)
	commit(t, store, answering(ref, turn, "one", session.OutcomeOpen))
	requireSame(t, all, recording(t, store, ref, "t1", 1))
	record(t, store, h, 2, rounds(1)...)
	two := answering(ref, turn, "two", session.OutcomeCompleted)
	two.Base, two.Result.Step = turn.Sequence+1, 2
	commit(t, store, two)
	requireSame(t, all, recording(t, store, ref, "t1", 1))
	requireSame(t, rounds(1), recording(t, store, ref, "t1", 2))
	require.Empty(t, recording(t, store, ref, "t1", 3))
}

func recordingIsWholeWithTheCommit(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	all := append([]execution.Entry{given("this")}, rounds(3)...)
	all[1].Digest, all[2].Arguments = "s:1 m:2 t:3", `{"page":0}`
	record(t, store, holding(ref, turn), 1, all[1:4]...)
	c := answering(ref, turn, "one", session.OutcomeCompleted)
	c.Journal = append(all[:1:1], all[3:]...) // one of them is stored already
	commit(t, store, c)
	requireSame(t, all, recording(t, store, ref, "t1", 1))
}

func recordingIsNoPartOfTheCommit(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	c := answering(ref, turn, "one", session.OutcomeCompleted)
	c.Journal = rounds(1)
	last := commit(t, store, c)
	c.Journal = nil
	require.Equal(t, last, commit(t, store, c), "the same commit again")
	requireSame(t, rounds(1), recording(t, store, ref, "t1", 1))
}

func recordingOutlivesAFailure(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	record(t, store, holding(ref, turn), 1, rounds(2)...)
	_, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	requireSame(t, rounds(2), recording(t, store, ref, "t1", 1))
}

func recordingHasWhatWasGivenLast(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	record(t, store, holding(ref, turn), 1, given("this"), rounds(1)[0])
	next := takeOver(t, store, ref, turn)
	record(t, store, holding(ref, next), 1, given("that"), rounds(1)[1])
	record(t, store, holding(ref, next), 1, given("that"))
	commit(t, store, answering(ref, next, "one", session.OutcomeCompleted))
	requireSame(t, append([]execution.Entry{given("that")}, rounds(1)[:2]...), recording(t, store, ref, "t1", 1))
}

func recordingIsNotForASuccessor(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	h := holding(ref, turn)
	record(t, store, h, 1, append([]execution.Entry{given("this")}, rounds(1)...)...)
	requireSame(t, rounds(1), journal(t, store, h, 1))
	commit(t, store, answering(ref, turn, "one", session.OutcomeOpen))
	requireMode(t, store.Record(t.Context(), h, 1, rounds(1)), failure.TurnNotOpen)
}

func recordingOfARunningStepIsEmpty(t *testing.T, store memory.Store) {
	ref := fresh()
	record(t, store, holding(ref, beginRecorded(t, store, ref, "t1")), 1, rounds(1)...)
	require.Empty(t, recording(t, store, ref, "t1", 1))
}

// The journal of a step whose calls wait is that of the step that goes on with the answers.
func recordingGoesOnWithTheCallsThatWait(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	record(t, store, holding(ref, turn), 1, append([]execution.Entry{given("this")}, rounds(1)...)...)
	c := answering(ref, turn, "may I?", session.OutcomeInputRequired)
	c.Result.InputRequired, c.Result.Pending = true, []execution.Pending{{ID: "1-1-4", Tool: "send_mail"}}
	commit(t, store, c)
	requireSame(t, append([]execution.Entry{given("this")}, rounds(1)...), recording(t, store, ref, "t1", 1))

	b := asking(ref, "t2", "")
	b.Continues, b.Message = "t1", b.Message.Stored()
	b.Message.Role, b.Message.Text = "", ""
	begun, err := store.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	require.Empty(t, recording(t, store, ref, "t1", 1))
	c = answering(ref, begun.Turn, "done", session.OutcomeCompleted)
	c.Journal = append([]execution.Entry{given("that")}, rounds(2)[3:]...)
	commit(t, store, c)
	requireSame(t, append([]execution.Entry{given("that")}, rounds(2)...), recording(t, store, ref, "t2", 1))
}

func recordingPages(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	all := long(20, 250<<10)
	for _, e := range all {
		record(t, store, holding(ref, turn), 1, e)
	}
	commit(t, store, answering(ref, turn, "one", session.OutcomeCompleted))
	page, err := store.Recording(t.Context(), ref, "t1", 1, 0)
	require.NoError(t, err)
	require.Less(t, len(page), len(all))
	requireSame(t, all, recording(t, store, ref, "t1", 1))
}

func recordingEndsWithTheSession(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	record(t, store, holding(ref, turn), 1, rounds(1)...)
	commit(t, store, answering(ref, turn, "one", session.OutcomeCompleted))
	remove(t, store, ref)
	_, err := store.Recording(t.Context(), ref, "t1", 1, 0)
	requireMode(t, err, failure.SessionDeleted)
}

func recordingEndsWithClear(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := beginRecorded(t, store, ref, "t1")
	for step := 1; step <= 2; step++ {
		record(t, store, holding(ref, turn), step, rounds(1)...)
		c := answering(ref, turn, "one", session.OutcomeOpen)
		c.Base, c.Result.Step = turn.Sequence+int64(step)-1, step
		if step == 2 {
			c.Outcome = session.OutcomeCompleted
		}
		commit(t, store, c)
	}
	require.NoError(t, store.ClearSession(t.Context(), ref))
	require.Empty(t, recording(t, store, ref, "t1", 1))
	require.Empty(t, recording(t, store, ref, "t1", 2))
}

func recordingEndsWithItsMessages(t *testing.T, store memory.Store) {
	ref := fresh()
	for _, id := range []string{"t1", "t2"} {
		c := answering(ref, beginRecorded(t, store, ref, id), "one", session.OutcomeCompleted)
		c.Journal = rounds(1)
		commit(t, store, c)
	}
	_, err := store.CompactSession(t.Context(), memory.Compact{Ref: ref, Keep: 2})
	require.NoError(t, err)
	require.Empty(t, recording(t, store, ref, "t1", 1))
	requireSame(t, rounds(1), recording(t, store, ref, "t2", 1))
}

func recordingOfNobodyIsNotFound(t *testing.T, store memory.Store) {
	ref := fresh()
	_, err := store.Recording(t.Context(), ref, "t1", 1, 0)
	requireMode(t, err, failure.NotFound)
	beginRecorded(t, store, ref, "t1")
	_, err = store.Recording(t.Context(), ref, "t2", 1, 0)
	requireMode(t, err, failure.NotFound)
}
