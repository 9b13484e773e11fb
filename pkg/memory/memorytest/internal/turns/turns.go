// Package turns tests how a store begins, leases, commits and fails the turns of a session.
package turns

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Tests returns the tests of this package by name.
func Tests() fixture.Tests {
	return fixture.Merge(beginTests(), withoutMessageTests(), leaseTests(), lookupTests(), userTests(), windowTests(), commitTests(), failTests())
}

func beginTests() fixture.Tests {
	return fixture.Tests{
		"Begin_OpensATurn":                         beginOpensATurn,
		"Begin_ReturnsAKnownTurn":                  beginReturnsAKnownTurn,
		"Begin_RepeatByTheHolderGetsTheSameAnswer": beginRepeatByTheHolderGetsTheSameAnswer,
		"Begin_RejectsAnotherFingerprint":          beginRejectsAnotherFingerprint,
		"Begin_RejectsAnotherTurnWhileOneIsOpen":   beginRejectsAnotherTurnWhileOneIsOpen,
		"Begin_LookupWritesNothing":                beginLookupWritesNothing,
		"Begin_ReturnsTheWindow":                   beginReturnsTheWindow,
		"Begin_EpochGrowsWithEachTurn":             beginEpochGrowsWithEachTurn,
		"Begin_ConcurrentCallersGetOneTurn":        beginConcurrentCallersGetOneTurn,
		"Begin_ManySessionsWorkAtOnce":             beginManySessionsWorkAtOnce,
		"Begin_EvictsATurnWithAnExpiredLease":      beginEvictsATurnWithAnExpiredLease,
	}
}

func beginOpensATurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)

	require.Positive(t, begun.Turn.Epoch)
	said := conversation.Message{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1}
	fixture.RequireEqual(t, memory.BeginResult{
		Status:  memory.StatusBegun,
		Turn:    session.Turn{ID: "t1", Trace: ask.TraceID, Number: 1, Epoch: begun.Turn.Epoch, Attempt: 1, Sequence: 1},
		History: []conversation.Message{said},
	}, begun)
	require.WithinDuration(t, time.Now(), begun.History[0].Time, time.Minute)

	s := fixture.GetSession(t, store, ref)
	fixture.RequireEqual(t, session.Session{
		ID: ref.Session, State: session.Busy, Turns: 1, Size: session.Size{Messages: 1}, LastSequence: 1, OpenTurn: "t1", LastTrace: ask.TraceID,
	}, s)
	require.Positive(t, s.Size.Bytes)
	require.WithinDuration(t, time.Now(), s.Created, time.Minute)
	require.Equal(t, s.Created, s.LastActivity)
}

func beginReturnsAKnownTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")

	again, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, again.Status)
	require.Positive(t, again.LeaseLeft)
	require.LessOrEqual(t, again.LeaseLeft, memory.MaxLeaseTTL)
	require.Empty(t, again.History)
	fixture.RequireEqual(t, turn, again.Turn)

	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "hi", session.OutcomeCompleted))
	again, err = store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, memory.StatusClosed, again.Status)
	require.Equal(t, session.OutcomeCompleted, again.Turn.Outcome)
	require.Len(t, again.Turn.Steps, 1)
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
}

// beginRepeatByTheHolderGetsTheSameAnswer repeats a call because its answer was lost.
func beginRepeatByTheHolderGetsTheSameAnswer(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.RequireEqual(t, first, again)
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

func beginRejectsAnotherFingerprint(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.BeginTurn(t, store, ref, "t1", "hello")
	other := fixture.NewBegin(ref, "t1", "something else")
	other.Fingerprint = "another"
	_, err := store.BeginTurn(t.Context(), other)
	fixture.RequireMode(t, err, failure.KeyReused, "turn_id", "t1")
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

// Req: C-21
func beginRejectsAnotherTurnWhileOneIsOpen(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t2", "and me"))
	fixture.RequireMode(t, err, failure.SessionBusy, "turn_id", "t1", "trace_id", turn.Trace)
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

func beginLookupWritesNothing(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.LookupOnly = true
	_, err := store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.NotFound, "turn_id", "t1")
	_, err = store.GetSession(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound)

	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	found, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, found.Status)
	fixture.RequireEqual(t, turn, found.Turn)
	ask.TurnID = "t2"
	_, err = store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.NotFound, "turn_id", "t2")
}

// Req: RA-21
func beginReturnsTheWindow(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for i := range 5 {
		fixture.RunTurn(t, store, ref, fmt.Sprintf("t%d", i), fmt.Sprintf("question %d", i), fmt.Sprintf("answer %d", i))
	}
	ask := fixture.NewBegin(ref, "last", "question 5")
	ask.Window = 4
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.RequireEqual(t, []conversation.Message{
		{Sequence: 8, Role: conversation.RoleAssistant, Author: "echo", Text: "answer 3", Turn: 4},
		{Sequence: 9, Role: conversation.RoleUser, Text: "question 4", Turn: 5},
		{Sequence: 10, Role: conversation.RoleAssistant, Author: "echo", Text: "answer 4", Turn: 5},
		{Sequence: 11, Role: conversation.RoleUser, Text: "question 5", Turn: 6},
	}, begun.History)
	require.Len(t, fixture.LoadHistory(t, store, ref), 11, "all of it stays stored")
}

func beginEpochGrowsWithEachTurn(t *testing.T, store memory.Store) {
	ref, last := fixture.NewRef(), int64(0)
	for i := range 10 {
		turn := fixture.RunTurn(t, store, ref, fmt.Sprintf("t%d", i), "question", "answer")
		require.Greater(t, turn.Epoch, last)
		require.Equal(t, i+1, turn.Number)
		last = turn.Epoch
	}
}

func beginConcurrentCallersGetOneTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	var mu sync.Mutex
	found := map[memory.BeginStatus]int{}
	var failed error
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			found[begun.Status]++
		})
	}
	callers.Wait()
	require.NoError(t, failed)
	require.Equal(t, map[memory.BeginStatus]int{memory.StatusBegun: 1, memory.StatusOpen: 15}, found)
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

func beginManySessionsWorkAtOnce(t *testing.T, store memory.Store) {
	refs := make([]session.Ref, 24)
	errs := make([]error, len(refs))
	var callers sync.WaitGroup
	for i := range refs {
		refs[i] = fixture.NewRef()
		callers.Go(func() {
			begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(refs[i], "t1", "hello"))
			if err == nil {
				_, err = store.CommitStep(t.Context(), fixture.NewCommit(refs[i], begun.Turn, "hi", session.OutcomeCompleted))
			}
			errs[i] = err
		})
	}
	callers.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, ref := range refs {
		s := fixture.GetSession(t, store, ref)
		require.Equal(t, session.Ready, s.State)
		require.EqualValues(t, 2, s.Size.Messages)
	}
}

// beginEvictsATurnWithAnExpiredLease waits for a lease to expire. It is the only slow test, because the shortest
// lease is one second by the clock of the store.
// Req: C-21
func beginEvictsATurnWithAnExpiredLease(t *testing.T, store memory.Store) {
	same, other := fixture.NewRef(), fixture.NewRef()
	lost := map[session.Ref]session.Turn{}
	begins := map[session.Ref]memory.Begin{}
	for _, ref := range []session.Ref{same, other} {
		ask := fixture.NewBegin(ref, "t1", "hello")
		ask.LeaseTTL = memory.MinLeaseTTL
		begins[ref] = ask
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		step := fixture.NewCommit(ref, begun.Turn, "first", session.OutcomeOpen)
		begun.Turn.Sequence = fixture.CommitStep(t, store, step)
		lost[ref] = begun.Turn
	}

	// The same request takes the turn over, but a lookup does not. The steps remain, and the message is not
	// appended again.
	look := fixture.NewBegin(same, "t1", "hello")
	look.LookupOnly = true
	found := fixture.AwaitBeginTurn(t, store, look)
	require.Equal(t, memory.StatusOpen, found.Status)
	require.Equal(t, lost[same].Epoch, found.Turn.Epoch)
	taken := fixture.AwaitBeginTurn(t, store, fixture.NewBegin(same, "t1", "hello"))
	require.Greater(t, taken.Turn.Epoch, lost[same].Epoch)
	require.Equal(t, 2, taken.Turn.Attempt)
	require.Equal(t, 1, taken.Turn.Number)
	require.Len(t, taken.Turn.Steps, 1)
	require.EqualValues(t, 2, taken.Turn.Sequence)
	require.Len(t, taken.History, 1, "as it began")
	fixture.RequireFenced(t, store, same, lost[same])
	again, err := store.BeginTurn(t.Context(), begins[same])
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, again.Status, "who lost the turn is not its holder any more")
	next := fixture.NewCommit(same, taken.Turn, "second", session.OutcomeCompleted)
	next.Result.Step = 2
	require.EqualValues(t, 3, fixture.CommitStep(t, store, next))

	// Another new turn fails the abandoned one and then begins.
	begun := fixture.AwaitBeginTurn(t, store, fixture.NewBegin(other, "t2", "and me"))
	require.Greater(t, begun.Turn.Epoch, lost[other].Epoch)
	require.Equal(t, 1, begun.Turn.Attempt)
	require.Equal(t, 2, begun.Turn.Number)
	require.Len(t, begun.History, 3)
	evicted := fixture.RepeatBeginTurn(t, store, other)
	require.Equal(t, session.OutcomeFailed, evicted.Outcome)
	require.Equal(t, failure.SystemTimeout, evicted.Failure.Mode)
	require.Len(t, evicted.Steps, 1)
	late := fixture.NewCommit(other, lost[other], "late", session.OutcomeCompleted)
	late.Result.Step = 2
	_, err = store.CommitStep(t.Context(), late)
	fixture.RequireMode(t, err, failure.Fenced)
	require.Equal(t, "t2", fixture.GetSession(t, store, other).OpenTurn)
}
