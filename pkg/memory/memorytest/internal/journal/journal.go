// Package journal tests the journals of steps, both while a step runs and after its commit.
package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Tests returns the tests of this package by name.
func Tests() fixture.Tests {
	return fixture.Merge(journalTests(), roundsTests())
}

func journalTests() fixture.Tests {
	return fixture.Tests{
		"Journal_ReturnsRecordedEntries":           journalReturnsRecordedEntries,
		"Journal_IsIdempotent":                     journalIsIdempotent,
		"Journal_RejectsADifferingEntry":           journalRejectsADifferingEntry,
		"Journal_StoresAllOrNone":                  journalStoresAllOrNone,
		"Journal_SuccessorReadsAndExtendsIt":       journalSuccessorReadsAndExtendsIt,
		"Journal_EachStepHasItsOwn":                journalEachStepHasItsOwn,
		"Journal_IsDeletedByTheCommit":             journalIsDeletedByTheCommit,
		"Journal_IsReadInPages":                    journalIsReadInPages,
		"Journal_RejectsTooManyBytes":              journalRejectsTooManyBytes,
		"Journal_IsEmptyWithoutEntries":            journalIsEmptyWithoutEntries,
		"Journal_IsUnreadableAfterTheTurn":         journalIsUnreadableAfterTheTurn,
		"Journal_DuplicatesInOneCallAreStoredOnce": journalDuplicatesInOneCallAreStoredOnce,
	}
}

func journalReturnsRecordedEntries(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	h := fixture.LeaseOf(ref, fixture.BeginTurn(t, store, ref, "t1", "hello"))
	all := fixture.ModelRounds(12) // more than 9, so that numbers sorted as text would fail the test
	for _, e := range all {
		fixture.RecordEntries(t, store, h, 1, e)
	}
	fixture.RequireEqual(t, all, fixture.LoadJournal(t, store, h, 1))
	page, err := store.LoadJournal(t.Context(), h, 1, 21)
	require.NoError(t, err)
	fixture.RequireEqual(t, all[31:], page)
}

func journalIsIdempotent(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	h := fixture.LeaseOf(ref, fixture.BeginTurn(t, store, ref, "t1", "hello"))
	all := fixture.ModelRounds(2)
	fixture.RecordEntries(t, store, h, 1, all[:3]...)
	fixture.RecordEntries(t, store, h, 1, all...)
	fixture.RecordEntries(t, store, h, 1, all...)
	fixture.RequireEqual(t, all, fixture.LoadJournal(t, store, h, 1))
}

func journalDuplicatesInOneCallAreStoredOnce(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	h := fixture.LeaseOf(ref, fixture.BeginTurn(t, store, ref, "t1", "hello"))
	e := fixture.ModelRounds(1)[0]
	fixture.RecordEntries(t, store, h, 1, e, e)
	other := e
	other.Reply.Text = "something else"
	fixture.RequireMode(t, store.Record(t.Context(), h, 2, []execution.Entry{e, other}), failure.Nondeterminism)
	fixture.RequireEqual(t, []execution.Entry{e}, fixture.LoadJournal(t, store, h, 1))
	require.Empty(t, fixture.LoadJournal(t, store, h, 2))
}

func journalRejectsADifferingEntry(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	h := fixture.LeaseOf(ref, fixture.BeginTurn(t, store, ref, "t1", "hello"))
	all := fixture.ModelRounds(1)
	fixture.RecordEntries(t, store, h, 1, all...)
	digest, text, reply := all[1], all[2], all[0]
	digest.Digest = stepjournal.CallDigest("read", "{}")
	text.Text = "another page"
	reply.Reply.Text = "something else"
	for _, other := range []execution.Entry{digest, text, reply} {
		fixture.RequireMode(t, store.Record(t.Context(), h, 1, []execution.Entry{other}), failure.Nondeterminism)
	}
	fixture.RequireEqual(t, all, fixture.LoadJournal(t, store, h, 1))
}

func journalStoresAllOrNone(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	h := fixture.LeaseOf(ref, fixture.BeginTurn(t, store, ref, "t1", "hello"))
	all := fixture.ModelRounds(2)
	fixture.RecordEntries(t, store, h, 1, all[4])
	other := all[4]
	other.Digest = stepjournal.CallDigest("write", "{}")
	fixture.RequireMode(t, store.Record(t.Context(), h, 1, append(all[:3:3], other)), failure.Nondeterminism)
	fixture.RequireEqual(t, all[4:5], fixture.LoadJournal(t, store, h, 1))
}

func journalSuccessorReadsAndExtendsIt(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	all := fixture.ModelRounds(2)
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, all[:4]...)
	next := fixture.LeaseOf(ref, fixture.TakeOver(t, store, ref, turn))
	fixture.RequireMode(t, store.Record(t.Context(), fixture.LeaseOf(ref, turn), 1, all[4:]), failure.Fenced)
	fixture.RequireEqual(t, all[:4], fixture.LoadJournal(t, store, next, 1))
	fixture.RecordEntries(t, store, next, 1, all...)
	fixture.RequireEqual(t, all, fixture.LoadJournal(t, store, next, 1))
}

func journalEachStepHasItsOwn(t *testing.T, store memory.Store) {
	ref, other := fixture.NewRef(), fixture.NewRef()
	h := fixture.LeaseOf(ref, fixture.BeginTurn(t, store, ref, "t1", "hello"))
	elsewhere := fixture.LeaseOf(other, fixture.BeginTurn(t, store, other, "t1", "hello"))
	fixture.RecordEntries(t, store, h, 1, fixture.ModelRounds(1)...)
	fixture.RecordEntries(t, store, h, 2, fixture.ModelRounds(2)...)
	fixture.RequireEqual(t, fixture.ModelRounds(1), fixture.LoadJournal(t, store, h, 1))
	fixture.RequireEqual(t, fixture.ModelRounds(2), fixture.LoadJournal(t, store, h, 2))
	require.Empty(t, fixture.LoadJournal(t, store, elsewhere, 1))
}

func journalIsDeletedByTheCommit(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	h := fixture.LeaseOf(ref, turn)
	fixture.RecordEntries(t, store, h, 1, fixture.ModelRounds(2)...)
	fixture.RecordEntries(t, store, h, 2, fixture.ModelRounds(1)...)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "one", session.OutcomeOpen))
	require.Empty(t, fixture.LoadJournal(t, store, h, 1))
	fixture.RequireEqual(t, fixture.ModelRounds(1), fixture.LoadJournal(t, store, h, 2))
	fixture.RequireMode(t, store.Record(t.Context(), h, 1, fixture.ModelRounds(1)), failure.TurnNotOpen, "turn_id", "t1")
	require.Empty(t, fixture.LoadJournal(t, store, h, 1))
}

func journalIsEmptyWithoutEntries(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	require.Empty(t, fixture.LoadJournal(t, store, fixture.LeaseOf(ref, fixture.BeginTurn(t, store, ref, "t1", "hello")), 1))
}

func journalIsUnreadableAfterTheTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	h := fixture.LeaseOf(ref, turn)
	fixture.RecordEntries(t, store, h, 1, fixture.ModelRounds(1)...)
	_, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	_, err = store.LoadJournal(t.Context(), h, 1, 0)
	fixture.RequireMode(t, err, failure.TurnNotOpen)
}

func journalIsReadInPages(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	h := fixture.LeaseOf(ref, fixture.BeginTurn(t, store, ref, "t1", "hello"))
	const size = 250 << 10
	all := fixture.LongEntries(20, size)
	for _, e := range all {
		intent := e
		intent.Phase, intent.Text, intent.Status = execution.Intent, "", ""
		fixture.RecordEntries(t, store, h, 1, intent, e)
	}
	pages, after := 0, 0
	for ; ; pages++ {
		page, err := store.LoadJournal(t.Context(), h, 1, after)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		require.Zero(t, len(page)%2, "the entries of a number come together")
		require.LessOrEqual(t, len(page)/2*size, memory.MaxWindowBytes)
		for i, e := range page {
			require.Equal(t, after+i/2+1, e.Number)
			require.Equal(t, i%2 == 0, e.Phase == execution.Intent)
		}
		after = page[len(page)-1].Number
	}
	require.Equal(t, 20, after)
	require.Equal(t, 2, pages)
}

func journalRejectsTooManyBytes(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	h := fixture.LeaseOf(ref, turn)
	all := fixture.LongEntries(70, 255<<10)
	for n := 0; n < 60; n += 10 {
		fixture.RecordEntries(t, store, h, 1, all[n:n+10]...)
	}
	fixture.RequireMode(t, store.Record(t.Context(), h, 1, all[60:]), failure.ResourceQuota)
	fixture.RecordEntries(t, store, h, 1, all[:2]...) // stored entries may be repeated
	fixture.RecordEntries(t, store, h, 2, all[60:]...)
	require.Len(t, fixture.LoadJournal(t, store, h, 1), 60)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "done", session.OutcomeCompleted))
}
