package memorytest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func beginTests() tests {
	return tests{
		"Begin_OpensATurn":                  beginOpensATurn,
		"Begin_KnownTurnIsReturned":         beginKnownTurnIsReturned,
		"Begin_HolderIsAnsweredAsBefore":    beginHolderIsAnsweredAsBefore,
		"Begin_RefusesAnotherFingerprint":   beginRefusesAnotherFingerprint,
		"Begin_RefusesAnotherTurnWhileOpen": beginRefusesAnotherTurnWhileOpen,
		"Begin_KnownOnlyWritesNothing":      beginKnownOnlyWritesNothing,
		"Begin_ReturnsTheWindow":            beginReturnsTheWindow,
		"Begin_EpochsGrow":                  beginEpochsGrow,
		"Begin_ConcurrentCallersGetOneTurn": beginConcurrentCallersGetOneTurn,
		"Begin_ManySessionsAtOnce":          beginManySessionsAtOnce,
		"Begin_LeaseThatRanOutMakesRoom":    beginLeaseThatRanOutMakesRoom,
	}
}

func beginOpensATurn(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)

	require.Positive(t, begun.Turn.Epoch)
	said := conversation.Message{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1}
	requireSame(t, memory.Begun{
		Found:   memory.FoundBegun,
		Turn:    session.Turn{ID: "t1", Trace: ask.TraceID, Number: 1, Epoch: begun.Turn.Epoch, Attempt: 1, Sequence: 1},
		History: []conversation.Message{said},
	}, begun)
	require.WithinDuration(t, time.Now(), begun.History[0].Time, time.Minute)

	s := get(t, store, ref)
	requireSame(t, session.Session{
		ID: ref.Session, State: session.Busy, Turns: 1, Messages: 1, Sequence: 1, OpenTurn: "t1", LastTrace: ask.TraceID,
	}, s)
	require.Positive(t, s.Bytes)
	require.WithinDuration(t, time.Now(), s.Created, time.Minute)
	require.Equal(t, s.Created, s.LastActivity)
}

func beginKnownTurnIsReturned(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")

	again, err := store.BeginTurn(t.Context(), asking(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, memory.FoundOpen, again.Found)
	require.Positive(t, again.LeaseLeft)
	require.LessOrEqual(t, again.LeaseLeft, memory.MaxLease)
	require.Empty(t, again.History)
	requireSame(t, turn, again.Turn)

	commit(t, store, answering(ref, turn, "hi", session.OutcomeCompleted))
	again, err = store.BeginTurn(t.Context(), asking(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, memory.FoundClosed, again.Found)
	require.Equal(t, session.OutcomeCompleted, again.Turn.Outcome)
	require.Len(t, again.Turn.Steps, 1)
	require.Len(t, history(t, store, ref), 2)
}

// beginHolderIsAnsweredAsBefore is the call whose answer was lost on the way.
func beginHolderIsAnsweredAsBefore(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	requireSame(t, first, again)
	require.Len(t, history(t, store, ref), 1)
}

func beginRefusesAnotherFingerprint(t *testing.T, store memory.Store) {
	ref := fresh()
	begin(t, store, ref, "t1", "hello")
	other := asking(ref, "t1", "something else")
	other.Fingerprint = "another"
	_, err := store.BeginTurn(t.Context(), other)
	requireMode(t, err, failure.KeyReused, "turn_id", "t1")
	require.Len(t, history(t, store, ref), 1)
}

// Req: C-21
func beginRefusesAnotherTurnWhileOpen(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	_, err := store.BeginTurn(t.Context(), asking(ref, "t2", "and me"))
	requireMode(t, err, failure.SessionBusy, "turn_id", "t1", "trace_id", turn.Trace)
	require.Len(t, history(t, store, ref), 1)
}

func beginKnownOnlyWritesNothing(t *testing.T, store memory.Store) {
	ref := fresh()
	ask := asking(ref, "t1", "hello")
	ask.KnownOnly = true
	_, err := store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.NotFound, "turn_id", "t1")
	_, err = store.GetSession(t.Context(), ref)
	requireMode(t, err, failure.NotFound)

	turn := begin(t, store, ref, "t1", "hello")
	found, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.FoundOpen, found.Found)
	requireSame(t, turn, found.Turn)
	ask.TurnID = "t2"
	_, err = store.BeginTurn(t.Context(), ask)
	requireMode(t, err, failure.NotFound, "turn_id", "t2")
}

// Req: RA-21
func beginReturnsTheWindow(t *testing.T, store memory.Store) {
	ref := fresh()
	for i := range 5 {
		converse(t, store, ref, fmt.Sprintf("t%d", i), fmt.Sprintf("question %d", i), fmt.Sprintf("answer %d", i))
	}
	ask := asking(ref, "last", "question 5")
	ask.Window = 4
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	requireSame(t, []conversation.Message{
		{Sequence: 8, Role: conversation.RoleAssistant, Author: "echo", Text: "answer 3", Turn: 4},
		{Sequence: 9, Role: conversation.RoleUser, Text: "question 4", Turn: 5},
		{Sequence: 10, Role: conversation.RoleAssistant, Author: "echo", Text: "answer 4", Turn: 5},
		{Sequence: 11, Role: conversation.RoleUser, Text: "question 5", Turn: 6},
	}, begun.History)
	require.Len(t, history(t, store, ref), 11, "all of it stays stored")
}

func beginEpochsGrow(t *testing.T, store memory.Store) {
	ref, last := fresh(), int64(0)
	for i := range 10 {
		turn := converse(t, store, ref, fmt.Sprintf("t%d", i), "question", "answer")
		require.Greater(t, turn.Epoch, last)
		require.Equal(t, i+1, turn.Number)
		last = turn.Epoch
	}
}

func beginConcurrentCallersGetOneTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	var mu sync.Mutex
	found := map[memory.Found]int{}
	var failed error
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			begun, err := store.BeginTurn(t.Context(), asking(ref, "t1", "hello"))
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			found[begun.Found]++
		})
	}
	callers.Wait()
	require.NoError(t, failed)
	require.Equal(t, map[memory.Found]int{memory.FoundBegun: 1, memory.FoundOpen: 15}, found)
	require.Len(t, history(t, store, ref), 1)
}

func beginManySessionsAtOnce(t *testing.T, store memory.Store) {
	refs := make([]session.Ref, 24)
	errs := make([]error, len(refs))
	var callers sync.WaitGroup
	for i := range refs {
		refs[i] = fresh()
		callers.Go(func() {
			begun, err := store.BeginTurn(t.Context(), asking(refs[i], "t1", "hello"))
			if err == nil {
				_, err = store.CommitStep(t.Context(), answering(refs[i], begun.Turn, "hi", session.OutcomeCompleted))
			}
			errs[i] = err
		})
	}
	callers.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, ref := range refs {
		s := get(t, store, ref)
		require.Equal(t, session.Ready, s.State)
		require.EqualValues(t, 2, s.Messages)
	}
}

// beginLeaseThatRanOutMakesRoom is the one slow test: the shortest lease is a second, by
// the clock of the store.
// Req: C-21
func beginLeaseThatRanOutMakesRoom(t *testing.T, store memory.Store) {
	same, other := fresh(), fresh()
	lost := map[session.Ref]session.Turn{}
	begins := map[session.Ref]memory.Begin{}
	for _, ref := range []session.Ref{same, other} {
		ask := asking(ref, "t1", "hello")
		ask.Lease = memory.MinLease
		begins[ref] = ask
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		step := answering(ref, begun.Turn, "first", session.OutcomeOpen)
		begun.Turn.Sequence = commit(t, store, step)
		lost[ref] = begun.Turn
	}

	// The same turn is taken over, but not by who only asks: its steps stay, its message is
	// not appended again.
	look := asking(same, "t1", "hello")
	look.KnownOnly = true
	found := beginWithin(t, store, look)
	require.Equal(t, memory.FoundOpen, found.Found)
	require.Equal(t, lost[same].Epoch, found.Turn.Epoch)
	taken := beginWithin(t, store, asking(same, "t1", "hello"))
	require.Greater(t, taken.Turn.Epoch, lost[same].Epoch)
	require.Equal(t, 2, taken.Turn.Attempt)
	require.Equal(t, 1, taken.Turn.Number)
	require.Len(t, taken.Turn.Steps, 1)
	require.EqualValues(t, 2, taken.Turn.Sequence)
	require.Len(t, taken.History, 1, "as it began")
	requireFenced(t, store, same, lost[same])
	again, err := store.BeginTurn(t.Context(), begins[same])
	require.NoError(t, err)
	require.Equal(t, memory.FoundOpen, again.Found, "who lost the turn is not its holder any more")
	next := answering(same, taken.Turn, "second", session.OutcomeCompleted)
	next.Result.Step = 2
	require.EqualValues(t, 3, commit(t, store, next))

	// Another turn fails the one that was left, and goes on behind it.
	begun := beginWithin(t, store, asking(other, "t2", "and me"))
	require.Greater(t, begun.Turn.Epoch, lost[other].Epoch)
	require.Equal(t, 1, begun.Turn.Attempt)
	require.Equal(t, 2, begun.Turn.Number)
	require.Len(t, begun.History, 3)
	evicted := known(t, store, other)
	require.Equal(t, session.OutcomeFailed, evicted.Outcome)
	require.Equal(t, failure.SystemTimeout, evicted.Failure.Mode)
	require.Len(t, evicted.Steps, 1)
	late := answering(other, lost[other], "late", session.OutcomeCompleted)
	late.Result.Step = 2
	_, err = store.CommitStep(t.Context(), late)
	requireMode(t, err, failure.Fenced)
	require.Equal(t, "t2", get(t, store, other).OpenTurn)
}

// beginWithin begins the turn again and again until it is the caller's, or could be.
func beginWithin(t *testing.T, store memory.Store, b memory.Begin) memory.Begun {
	t.Helper()
	const patience = 15 * time.Second
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		begun, err := store.BeginTurn(t.Context(), b)
		if err == nil && (begun.Found == memory.FoundBegun || b.KnownOnly && begun.LeaseLeft == 0) {
			return begun
		}
		if err != nil {
			requireMode(t, err, failure.SessionBusy)
		}
		select {
		case <-deadline.C:
			require.FailNow(t, "the lease did not run out", "within %s", patience)
		case <-tick.C:
		}
	}
}

// requireFenced tries every call of a turn with the epoch of a holder that was replaced.
func requireFenced(t *testing.T, store memory.Store, ref session.Ref, old session.Turn) {
	t.Helper()
	before := visible(t, store, ref)
	late := answering(ref, old, "late", session.OutcomeCompleted)
	late.Result.Step = 2
	_, err := store.CommitStep(t.Context(), late)
	requireMode(t, err, failure.Fenced, "epoch", fmt.Sprint(old.Epoch))
	_, err = store.FailTurn(t.Context(), failing(ref, old, session.OutcomeFailed))
	requireMode(t, err, failure.Fenced, "epoch", fmt.Sprint(old.Epoch))
	for name, call := range holderCalls(store, holding(ref, old)) {
		requireMode(t, call(t), failure.Fenced, "epoch", fmt.Sprint(old.Epoch))
		require.Empty(t, cmp.Diff(before, visible(t, store, ref), cmpopts.EquateEmpty()), name)
	}
}

// holderCalls is every call that only the holder of a turn may make, beside those that
// close it.
func holderCalls(store memory.Store, h memory.Hold) map[string]func(*testing.T) error {
	c := contentOf("late")
	return map[string]func(*testing.T) error{
		"RenewTurn":   func(t *testing.T) error { return store.RenewTurn(t.Context(), h, memory.MinLease) },
		"ReleaseTurn": func(t *testing.T) error { return store.ReleaseTurn(t.Context(), h) },
		"Record":      func(t *testing.T) error { return store.Record(t.Context(), h, 2, rounds(1)) },
		"LoadJournal": func(t *testing.T) error {
			_, err := store.LoadJournal(t.Context(), h, 2, 0)
			return err
		},
		"UpdateState": func(t *testing.T) error {
			u := changing(h.Ref, "late", "1")
			u.TurnID, u.Epoch = h.TurnID, h.Epoch
			_, err := store.UpdateState(t.Context(), u)
			return err
		},
		"UpdateState of app:": func(t *testing.T) error {
			u := changing(h.Ref, "app:late", "1")
			u.TurnID, u.Epoch = h.TurnID, h.Epoch
			_, err := store.UpdateState(t.Context(), u)
			return err
		},
		"StageArtifact": func(t *testing.T) error {
			_, err := store.StageArtifact(t.Context(), h, c)
			return err
		},
		"AppendArtifact": func(t *testing.T) error { return store.AppendArtifact(t.Context(), h, c, 0, []byte("late")) },
		"PutArtifact": func(t *testing.T) error {
			_, err := store.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: "late"})
			return err
		},
		"DeleteArtifact": func(t *testing.T) error { return store.DeleteArtifact(t.Context(), h, "late", 0) },
	}
}
