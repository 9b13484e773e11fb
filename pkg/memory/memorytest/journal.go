package memorytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func journalTests() tests {
	return tests{
		"Journal_IsReadBack":                journalIsReadBack,
		"Journal_TwiceIsOnce":               journalTwiceIsOnce,
		"Journal_RefusesAnotherEntry":       journalRefusesAnotherEntry,
		"Journal_StoresAllOrNone":           journalStoresAllOrNone,
		"Journal_IsForTheSuccessor":         journalIsForTheSuccessor,
		"Journal_OfEachStepIsItsOwn":        journalOfEachStepIsItsOwn,
		"Journal_IsForgottenWithTheCommit":  journalIsForgottenWithTheCommit,
		"Journal_Pages":                     journalPages,
		"Journal_RefusesTooMuch":            journalRefusesTooMuch,
		"Journal_OfNothingIsEmpty":          journalOfNothingIsEmpty,
		"Journal_EndsWithTheTurn":           journalEndsWithTheTurn,
		"Journal_DuplicatesInOneCallAreOne": journalDuplicatesInOneCallAreOne,
	}
}

// rounds are the entries of a step with so many iterations: a model's reply, and a tool
// call before and after.
func rounds(n int) []execution.Entry {
	var all []execution.Entry
	for i := range n {
		arguments := fmt.Sprintf(`{"page":%d}`, i)
		reply := conversation.Assistant("echo", fmt.Sprintf("looking at page %d", i))
		reply.ToolCalls = []conversation.ToolCall{{ID: fmt.Sprintf("call-%d", i), Name: "read", Arguments: arguments}}
		call := execution.Entry{
			Number: 2*i + 2, Phase: execution.Intent, Tool: "read", Effect: execution.AtMostOnce,
			Digest: execution.CallDigest("read", arguments),
		}
		done := call
		done.Phase, done.Status, done.Text = execution.Done, "success", fmt.Sprintf("page %d", i)
		all = append(all,
			execution.Entry{Number: 2*i + 1, Phase: execution.Done, Reply: reply, Usage: execution.Usage{InputTokens: 10, OutputTokens: 5, ModelCalls: 1}},
			call, done)
	}
	return all
}

func record(t *testing.T, store memory.Store, h memory.Hold, step int, entries ...execution.Entry) {
	t.Helper()
	require.NoError(t, store.Record(t.Context(), h, step, entries))
}

// journal reads all pages.
func journal(t *testing.T, store memory.Store, h memory.Hold, step int) []execution.Entry {
	t.Helper()
	var all []execution.Entry
	for after := 0; ; after = all[len(all)-1].Number {
		page, err := store.LoadJournal(t.Context(), h, step, after)
		require.NoError(t, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

func journalIsReadBack(t *testing.T, store memory.Store) {
	ref := fresh()
	h := holding(ref, begin(t, store, ref, "t1", "hello"))
	all := rounds(12) // more than 9, for numbers are not sorted as texts
	for _, e := range all {
		record(t, store, h, 1, e)
	}
	requireSame(t, all, journal(t, store, h, 1))
	page, err := store.LoadJournal(t.Context(), h, 1, 21)
	require.NoError(t, err)
	requireSame(t, all[31:], page)
}

func journalTwiceIsOnce(t *testing.T, store memory.Store) {
	ref := fresh()
	h := holding(ref, begin(t, store, ref, "t1", "hello"))
	all := rounds(2)
	record(t, store, h, 1, all[:3]...)
	record(t, store, h, 1, all...)
	record(t, store, h, 1, all...)
	requireSame(t, all, journal(t, store, h, 1))
}

func journalDuplicatesInOneCallAreOne(t *testing.T, store memory.Store) {
	ref := fresh()
	h := holding(ref, begin(t, store, ref, "t1", "hello"))
	e := rounds(1)[0]
	record(t, store, h, 1, e, e)
	other := e
	other.Reply.Text = "something else"
	requireMode(t, store.Record(t.Context(), h, 2, []execution.Entry{e, other}), failure.Nondeterminism)
	requireSame(t, []execution.Entry{e}, journal(t, store, h, 1))
	require.Empty(t, journal(t, store, h, 2))
}

func journalRefusesAnotherEntry(t *testing.T, store memory.Store) {
	ref := fresh()
	h := holding(ref, begin(t, store, ref, "t1", "hello"))
	all := rounds(1)
	record(t, store, h, 1, all...)
	digest, text, reply := all[1], all[2], all[0]
	digest.Digest = execution.CallDigest("read", "{}")
	text.Text = "another page"
	reply.Reply.Text = "something else"
	for _, other := range []execution.Entry{digest, text, reply} {
		requireMode(t, store.Record(t.Context(), h, 1, []execution.Entry{other}), failure.Nondeterminism)
	}
	requireSame(t, all, journal(t, store, h, 1))
}

func journalStoresAllOrNone(t *testing.T, store memory.Store) {
	ref := fresh()
	h := holding(ref, begin(t, store, ref, "t1", "hello"))
	all := rounds(2)
	record(t, store, h, 1, all[4])
	other := all[4]
	other.Digest = execution.CallDigest("write", "{}")
	requireMode(t, store.Record(t.Context(), h, 1, append(all[:3:3], other)), failure.Nondeterminism)
	requireSame(t, all[4:5], journal(t, store, h, 1))
}

func journalIsForTheSuccessor(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	all := rounds(2)
	record(t, store, holding(ref, turn), 1, all[:4]...)
	next := holding(ref, takeOver(t, store, ref, turn))
	requireMode(t, store.Record(t.Context(), holding(ref, turn), 1, all[4:]), failure.Fenced)
	requireSame(t, all[:4], journal(t, store, next, 1))
	record(t, store, next, 1, all...)
	requireSame(t, all, journal(t, store, next, 1))
}

func journalOfEachStepIsItsOwn(t *testing.T, store memory.Store) {
	ref, other := fresh(), fresh()
	h := holding(ref, begin(t, store, ref, "t1", "hello"))
	elsewhere := holding(other, begin(t, store, other, "t1", "hello"))
	record(t, store, h, 1, rounds(1)...)
	record(t, store, h, 2, rounds(2)...)
	requireSame(t, rounds(1), journal(t, store, h, 1))
	requireSame(t, rounds(2), journal(t, store, h, 2))
	require.Empty(t, journal(t, store, elsewhere, 1))
}

func journalIsForgottenWithTheCommit(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	h := holding(ref, turn)
	record(t, store, h, 1, rounds(2)...)
	record(t, store, h, 2, rounds(1)...)
	commit(t, store, answering(ref, turn, "one", session.OutcomeOpen))
	require.Empty(t, journal(t, store, h, 1))
	requireSame(t, rounds(1), journal(t, store, h, 2))
	requireMode(t, store.Record(t.Context(), h, 1, rounds(1)), failure.TurnNotOpen, "turn_id", "t1")
	require.Empty(t, journal(t, store, h, 1))
}

func journalOfNothingIsEmpty(t *testing.T, store memory.Store) {
	ref := fresh()
	require.Empty(t, journal(t, store, holding(ref, begin(t, store, ref, "t1", "hello")), 1))
}

func journalEndsWithTheTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	h := holding(ref, turn)
	record(t, store, h, 1, rounds(1)...)
	_, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	_, err = store.LoadJournal(t.Context(), h, 1, 0)
	requireMode(t, err, failure.TurnNotOpen)
}

// long are results of tools, each of the size, which end after its number.
func long(n, size int) []execution.Entry {
	all := make([]execution.Entry, n)
	for i := range all {
		all[i] = execution.Entry{Number: i + 1, Phase: execution.Done, Tool: "read", Digest: "d", Status: "success", Text: strings.Repeat("a", size)}
	}
	return all
}

func journalPages(t *testing.T, store memory.Store) {
	ref := fresh()
	h := holding(ref, begin(t, store, ref, "t1", "hello"))
	const size = 250 << 10
	all := long(20, size)
	for _, e := range all {
		intent := e
		intent.Phase, intent.Text, intent.Status = execution.Intent, "", ""
		record(t, store, h, 1, intent, e)
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

func journalRefusesTooMuch(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	h := holding(ref, turn)
	all := long(70, 255<<10)
	for n := 0; n < 60; n += 10 {
		record(t, store, h, 1, all[n:n+10]...)
	}
	requireMode(t, store.Record(t.Context(), h, 1, all[60:]), failure.ResourceQuota)
	record(t, store, h, 1, all[:2]...) // what is stored may be repeated
	record(t, store, h, 2, all[60:]...)
	require.Len(t, journal(t, store, h, 1), 60)
	commit(t, store, answering(ref, turn, "done", session.OutcomeCompleted))
}
