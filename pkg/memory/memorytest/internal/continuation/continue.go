package continuation

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func continuationTests() fixture.Tests {
	return fixture.Tests{
		"Continue_ReplacesTheWaitingTurn":           continueReplacesTheWaitingTurn,
		"Continue_RepeatReturnsTheSameTurn":         continueRepeatReturnsTheSameTurn,
		"Continue_TurnCanBeTakenOver":               continueTurnCanBeTakenOver,
		"Continue_OneConcurrentCallerWins":          continueOneConcurrentCallerWins,
		"Continue_RejectsATurnWithoutWaitingCalls":  continueRejectsATurnWithoutWaitingCalls,
		"Continue_RejectsConflictingFields":         continueRejectsConflictingFields,
		"Continue_RespectsUserAndStateOfTheSession": continueRespectsUserAndStateOfTheSession,
		"Continue_TurnMayWaitAgain":                 continueTurnMayWaitAgain,
		"Continue_RequiresTheStoppedStepFirst":      continueRequiresTheStoppedStepFirst,
		"Continue_InheritsEarlierSteps":             continueInheritsEarlierSteps,
	}
}

func continueReplacesTheWaitingTurn(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	before := fixture.GetSession(t, store, ref)
	ask := fixture.NewContinuation(ref, turn, "t2")
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	first := fixture.NewCommit(ref, turn, "first", session.OutcomeOpen).Result
	first.Sequence, first.Inherited = 4, true
	fixture.RequireEqual(t, memory.BeginResult{
		Status: memory.StatusBegun, Messages: 5,
		Turn: session.Turn{
			ID: "t2", Trace: ask.TraceID, Number: 3, Epoch: begun.Turn.Epoch, Attempt: 2, Sequence: 5,
			Steps: []execution.Result{first}, Continues: "t1", Answers: fixture.NewAnswers(),
		},
		History: []conversation.Message{
			{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1},
			{Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Text: "hi", Turn: 1},
			{Sequence: 3, Role: conversation.RoleUser, Text: "read on", Turn: 2},
		},
	}, begun)
	require.Greater(t, begun.Turn.Epoch, turn.Epoch)
	fixture.RequireEqual(t, session.Session{
		ID: ref.Session, State: session.Busy, Turns: 3, Size: session.Size{Messages: before.Size.Messages}, LastSequence: before.LastSequence,
		OpenTurn: "t2", LastTrace: ask.TraceID,
	}, fixture.GetSession(t, store, ref))
	for _, call := range fixture.TurnCalls(store, fixture.LeaseOf(ref, turn)) {
		fixture.RequireMode(t, call(t), failure.Fenced, "current_epoch", fmt.Sprint(begun.Turn.Epoch))
	}

	// The commit completes the step and appends only its own messages.
	h := fixture.LeaseOf(ref, begun.Turn)
	fixture.RequireEqual(t, newInterruptedJournal(), fixture.LoadJournal(t, store, h, 2))
	fixture.RecordEntries(t, store, h, 2, fixture.ModelRounds(3)...)
	fixture.RequireEqual(t, fixture.ModelRounds(3), fixture.LoadJournal(t, store, h, 2))
	c := fixture.NewCommit(ref, begun.Turn, "second", session.OutcomeCompleted)
	c.Result.Step = 2
	require.EqualValues(t, 6, fixture.CommitStep(t, store, c))
	require.Equal(t, []string{"1 hello", "2 hi", "3 read on", "4 first", "5 read and locate wait for you", "6 second"},
		messageTexts(fixture.LoadHistory(t, store, ref)))
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
}

func continueRepeatReturnsTheSameTurn(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	ask := fixture.NewContinuation(ref, turn, "t2")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	for _, lookupOnly := range []bool{false, true} {
		ask.LookupOnly = lookupOnly
		again, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		fixture.RequireEqual(t, first, again)
	}
	// A repeated request does not change the answers with which the turn began, even if it has other answers. A
	// client that repeats a request may not remember which calls waited.
	other := fixture.NewContinuation(ref, turn, "t2")
	other.Predecessor.Continues, other.Predecessor.Answers = "t2", nil
	found, err := store.BeginTurn(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, found.Status)
	fixture.RequireEqual(t, first.Turn, found.Turn)
	other.Fingerprint = "another"
	_, err = store.BeginTurn(t.Context(), other)
	fixture.RequireMode(t, err, failure.KeyReused, "turn_id", "t2")

	c := fixture.NewCommit(ref, first.Turn, "second", session.OutcomeCompleted)
	c.Result.Step = 2
	for range 2 {
		fixture.CommitStep(t, store, c)
	}
	closed, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	require.NoError(t, err)
	require.Equal(t, memory.StatusClosed, closed.Status)
	require.Equal(t, "t1", closed.Turn.Continues)
	fixture.RequireEqual(t, fixture.NewAnswers(), closed.Turn.Answers)
	require.Len(t, closed.Turn.Steps, 2)
	ask = fixture.NewContinuation(ref, turn, "t3")
	ask.LookupOnly = true
	_, err = store.BeginTurn(t.Context(), ask)
	fixture.RequireMode(t, err, failure.NotFound, "turn_id", "t3")
}

// continueTurnCanBeTakenOver takes the turn over after the loss of the caller that sent the answers, and then twice
// after the loss of a worker.
func continueTurnCanBeTakenOver(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	first, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	require.NoError(t, err)
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, first.Turn), 2, fixture.ModelRounds(3)[:7]...)
	fixture.ReleaseTurn(t, store, ref, first.Turn)

	ask := fixture.NewContinuation(ref, turn, "t2")
	for attempt := 3; attempt < 6; attempt++ {
		next, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		want := first
		want.Turn.Attempt, want.Turn.Epoch = attempt, next.Turn.Epoch
		fixture.RequireEqual(t, want, next)
		require.Greater(t, next.Turn.Epoch, first.Turn.Epoch)
		fixture.RequireEqual(t, fixture.ModelRounds(3)[:7], fixture.LoadJournal(t, store, fixture.LeaseOf(ref, next.Turn), 2))
		ask.LostEpoch = next.Turn.Epoch
	}
	fixture.RequireFenced(t, store, ref, first.Turn)
}

func continueOneConcurrentCallerWins(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	errs := make([]error, 16)
	begun := make([]memory.BeginResult, len(errs))
	var callers sync.WaitGroup
	for i := range errs {
		callers.Go(func() {
			begun[i], errs[i] = store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, fmt.Sprintf("a%d", i)))
		})
	}
	callers.Wait()
	var winner session.Turn
	for i, err := range errs {
		if err == nil {
			require.Empty(t, winner.ID)
			winner = begun[i].Turn
			continue
		}
		require.True(t, failure.Is(err, failure.SessionBusy, failure.TurnNotOpen), "%v", err)
	}
	require.NotEmpty(t, winner.ID)
	fixture.RequireEqual(t, newInterruptedJournal(), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, winner), 2))
	require.Equal(t, 3, fixture.GetSession(t, store, ref).Turns)

	_, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "late"))
	fixture.RequireMode(t, err, failure.SessionBusy, "turn_id", winner.ID)
	fixture.ReleaseTurn(t, store, ref, winner)
	_, err = store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "late"))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	require.Equal(t, winner.ID, fixture.GetSession(t, store, ref).OpenTurn, "a rejected turn does not evict the open one")
}

func continueRejectsATurnWithoutWaitingCalls(t *testing.T, store memory.Store) {
	nowhere := fixture.NewRef()
	_, err := store.BeginTurn(t.Context(), fixture.NewContinuation(nowhere, session.Turn{ID: "t1"}, "t2"))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	_, err = store.GetSession(t.Context(), nowhere)
	fixture.RequireMode(t, err, failure.NotFound)

	ref, turn := newWaitingTurn(t, store)
	elsewhere := fixture.NewRef()
	fixture.BeginTurn(t, store, elsewhere, "other", "hello")
	for _, id := range []string{"t0", "t2", "t", "t11", "other", "unknown"} {
		before := fixture.ReadSession(t, store, ref)
		_, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, session.Turn{ID: id}, "t2"))
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", id)
		fixture.RequireEqual(t, before, fixture.ReadSession(t, store, ref))
	}

	// Answered calls no longer wait, whatever the outcome of the turn that continued them.
	next := continueTurn(t, store, ref, turn, "t2")
	_, err = store.FailTurn(t.Context(), fixture.NewFailRequest(ref, next, session.OutcomeCancelled))
	require.NoError(t, err)
	for _, from := range []session.Turn{turn, next} {
		_, err = store.BeginTurn(t.Context(), fixture.NewContinuation(ref, from, "t3"))
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", from.ID)
	}
}

func continueRejectsConflictingFields(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	before := fixture.ReadSession(t, store, ref)
	both := fixture.NewContinuation(ref, turn, "t2")
	both.Message = conversation.User("and this")
	_, err := store.BeginTurn(t.Context(), both)
	fixture.RequireMode(t, err, failure.UserInvalidInput)
	require.ErrorContains(t, err, "message")
	nobodys := fixture.NewContinuation(ref, turn, "t2")
	nobodys.Predecessor.Continues = ""
	_, err = store.BeginTurn(t.Context(), nobodys)
	fixture.RequireMode(t, err, failure.UserInvalidInput)
	require.ErrorContains(t, err, "answers")
	fixture.RequireEqual(t, before, fixture.ReadSession(t, store, ref))

	// A turn may continue while one of its calls has no answer.
	ask := fixture.NewContinuation(ref, turn, "t2")
	ask.Predecessor.Answers = nil
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Empty(t, begun.Turn.Answers)
}

func continueRespectsUserAndStateOfTheSession(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	stranger := fixture.NewContinuation(ref, turn, "t2")
	stranger.User = "mallory"
	_, err := store.BeginTurn(t.Context(), stranger)
	fixture.RequireMode(t, err, failure.NotFound)
	_, err = store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Close})
	require.NoError(t, err)
	_, err = store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	fixture.RequireMode(t, err, failure.SessionClosed)
	_, err = store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Resume})
	require.NoError(t, err)
	next := continueTurn(t, store, ref, turn, "t2")
	_, err = store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Close})
	fixture.RequireMode(t, err, failure.SessionBusy, "turn_id", next.ID)
	fixture.RequireMode(t, store.ClearSession(t.Context(), ref), failure.SessionBusy, "turn_id", next.ID)
}

// continueTurnMayWaitAgain continues the turn several times, with answers to all of its calls or to some. Each
// time the step waits again.
func continueTurnMayWaitAgain(t *testing.T, store memory.Store) {
	ref, from := newWaitingTurn(t, store)
	begun, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, from, "t2"))
	require.NoError(t, err)
	window := begun.History
	for i, id := range []string{"t3", "t4", "t5"} {
		h := fixture.LeaseOf(ref, begun.Turn)
		fixture.RecordEntries(t, store, h, 2, fixture.ModelRounds(i+3)...)
		c := fixture.NewWaitingCommit(ref, begun.Turn, 2)
		c.Result.Pending = c.Result.Pending[1:]
		fixture.CommitStep(t, store, c)
		s := fixture.GetSession(t, store, ref)
		require.Equal(t, begun.Turn.ID, s.WaitingTurn)
		fixture.RequireEqual(t, c.Result.Pending, s.Pending)
		_, err = store.BeginTurn(t.Context(), fixture.NewContinuation(ref, from, id))
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", from.ID)

		from = begun.Turn
		ask := fixture.NewContinuation(ref, from, id)
		ask.Predecessor.Answers = ask.Predecessor.Answers[i%2:]
		begun, err = store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Equal(t, i+3, begun.Turn.Attempt)
		require.Equal(t, i+4, begun.Turn.Number)
		require.Equal(t, from.ID, begun.Turn.Continues)
		require.Len(t, begun.Turn.Steps, 1)
		fixture.RequireEqual(t, ask.Predecessor.Answers, begun.Turn.Answers)
		fixture.RequireEqual(t, window, begun.History)
		fixture.RequireEqual(t, fixture.ModelRounds(i+3), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, begun.Turn), 2))
		require.Empty(t, fixture.GetSession(t, store, ref).WaitingTurn)
	}
	last := fixture.NewCommit(ref, begun.Turn, "second", session.OutcomeOpen)
	last.Result.Step = 2
	begun.Turn.Sequence = fixture.CommitStep(t, store, last)
	require.Empty(t, fixture.LoadJournal(t, store, fixture.LeaseOf(ref, begun.Turn), 2))

	// A later step of the turn may have waiting calls too.
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, begun.Turn), 3, fixture.ModelRounds(1)...)
	fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, begun.Turn, 3))
	next := continueTurn(t, store, ref, begun.Turn, "t6")
	require.Len(t, next.Steps, 2)
	fixture.RequireEqual(t, fixture.ModelRounds(1), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, next), 3))
}

// continueRequiresTheStoppedStepFirst checks that the step with the waiting calls must be committed before any
// other step.
func continueRequiresTheStoppedStepFirst(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	next := continueTurn(t, store, ref, turn, "t2")
	for _, c := range []memory.Commit{fixture.NewCommit(ref, next, "third", session.OutcomeCompleted), fixture.NewWaitingCommit(ref, next, 3)} {
		c.Result.Step = 3
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.UserInvalidInput, "turn_id", "t2", "step", "3")
	}
	require.Equal(t, "t2", fixture.GetSession(t, store, ref).OpenTurn)
	for step := 2; step <= 3; step++ {
		c := fixture.NewCommit(ref, next, "more", session.OutcomeOpen)
		c.Result.Step = step
		next.Sequence = fixture.CommitStep(t, store, c)
	}
}

func continueInheritsEarlierSteps(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	next := continueTurn(t, store, ref, turn, "t2")
	c := fixture.NewCommit(ref, next, "first", session.OutcomeOpen)
	for _, base := range []int64{3, 5} {
		c.Base = base
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.TurnNotOpen, "step", "1")
	}
	fixture.RequireMode(t, store.Record(t.Context(), fixture.LeaseOf(ref, next), 1, fixture.ModelRounds(1)), failure.TurnNotOpen)
	other := newInterruptedJournal()
	other[0].Reply.Text = "something else"
	fixture.RequireMode(t, store.Record(t.Context(), fixture.LeaseOf(ref, next), 2, other[:1]), failure.Nondeterminism)
	require.Len(t, fixture.LoadHistory(t, store, ref), 5)
}
