package memorytest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func resumeTests() tests {
	return tests{
		"Resume_TakesThePlaceOfTheTurn":      resumeTakesThePlaceOfTheTurn,
		"Resume_AgainIsTheSameTurn":          resumeAgainIsTheSameTurn,
		"Resume_IsTakenOver":                 resumeIsTakenOver,
		"Resume_FailsAndIsResumedAgain":      resumeFailsAndIsResumedAgain,
		"Resume_KeepsJournalsOfSeveralSteps": resumeKeepsJournalsOfSeveralSteps,
		"Resume_RefusesWhatDidNotFail":       resumeRefusesWhatDidNotFail,
		"Resume_RefusesWhenTheSessionWentOn": resumeRefusesWhenTheSessionWentOn,
		"Resume_RefusesPartsThatDoNotFit":    resumeRefusesPartsThatDoNotFit,
	}
}

// broken is a session whose last turn, t1, failed in its second step, which had done two rounds.
func broken(t *testing.T, store memory.Store) (session.Ref, session.Turn) {
	t.Helper()
	ref := fresh()
	converse(t, store, ref, "t0", "hello", "hi")
	turn := begin(t, store, ref, "t1", "read on")
	turn.Sequence = commit(t, store, answering(ref, turn, "first", session.OutcomeOpen))
	record(t, store, holding(ref, turn), 2, rounds(2)...)
	failed, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	return ref, failed
}

// resuming is a Begin of a turn in the place of one that failed, with all its steps.
func resuming(ref session.Ref, from session.Turn, turnID string) memory.Begin {
	b := goingOn(ref, turnID)
	b.Resumes, b.Inherited = from.ID, from.Steps
	return b
}

func inherited(results ...execution.Result) []execution.Result {
	for i := range results {
		results[i].Inherited = true
	}
	return results
}

// resumeTakesThePlaceOfTheTurn goes on where it failed: with its window, the results of its steps
// and the journal of the one that failed, and without a message.
//
// Req: OC-27
func resumeTakesThePlaceOfTheTurn(t *testing.T, store memory.Store) {
	ref, from := broken(t, store)
	before := get(t, store, ref)
	ask := resuming(ref, from, "t2")
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	first := answering(ref, from, "first", session.OutcomeOpen).Result
	first.Sequence = 4
	requireSame(t, memory.Begun{
		Found: memory.FoundBegun,
		Turn: session.Turn{
			ID: "t2", Trace: ask.TraceID, Number: 3, Epoch: begun.Turn.Epoch, Attempt: 2, Sequence: 5,
			Steps: inherited(first), Origin: "t1",
		},
		History: []conversation.Message{
			{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1},
			{Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Text: "hi", Turn: 1},
			{Sequence: 3, Role: conversation.RoleUser, Text: "read on", Turn: 2},
		},
	}, begun)
	require.Greater(t, begun.Turn.Epoch, from.Epoch)
	require.Equal(t, before.Messages, get(t, store, ref).Messages)

	h := holding(ref, begun.Turn)
	requireSame(t, rounds(2), journal(t, store, h, 2))
	record(t, store, h, 2, rounds(3)...)
	again := answering(ref, begun.Turn, "first", session.OutcomeOpen)
	_, err = store.CommitStep(t.Context(), again)
	requireMode(t, err, failure.TurnNotOpen, "step", "1")
	c := answering(ref, begun.Turn, "second", session.OutcomeCompleted)
	c.Result.Step = 2
	require.EqualValues(t, 6, commit(t, store, c))
	require.Equal(t, session.Ready, get(t, store, ref).State)
	require.Equal(t, []string{"1 hello", "2 hi", "3 read on", "4 first", "5 looking at page 0\n\nlooking at page 1", "6 second"}, said(history(t, store, ref)))
}

func resumeAgainIsTheSameTurn(t *testing.T, store memory.Store) {
	ref, from := broken(t, store)
	ask := resuming(ref, from, "t2")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	for _, knownOnly := range []bool{false, true} {
		ask.KnownOnly = knownOnly
		again, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		requireSame(t, first, again)
	}
	other := resuming(ref, from, "t2")
	found, err := store.BeginTurn(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, memory.FoundOpen, found.Found)
	requireSame(t, first.Turn, found.Turn)
	other.Fingerprint = "another"
	_, err = store.BeginTurn(t.Context(), other)
	requireMode(t, err, failure.KeyReused, "turn_id", "t2")
	_, err = store.BeginTurn(t.Context(), resuming(ref, from, "t3"))
	requireMode(t, err, failure.SessionBusy, "turn_id", "t2")
}

// resumeIsTakenOver is the death of who resumed, and then of a worker.
func resumeIsTakenOver(t *testing.T, store memory.Store) {
	ref, from := broken(t, store)
	ask := resuming(ref, from, "t2")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	release(t, store, ref, first.Turn)
	ask = asking(ref, "t2", "") // who takes it over knows nothing of what it was begun with
	ask.Message = conversation.Message{}
	for attempt := 3; attempt < 5; attempt++ {
		next, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		want := first
		want.Turn.Attempt, want.Turn.Epoch = attempt, next.Turn.Epoch
		requireSame(t, want, next)
		requireSame(t, rounds(2), journal(t, store, holding(ref, next.Turn), 2))
		ask.LostEpoch = next.Turn.Epoch
	}
	requireFenced(t, store, ref, first.Turn)
}

// resumeFailsAndIsResumedAgain keeps what was done first, and under which name.
func resumeFailsAndIsResumedAgain(t *testing.T, store memory.Store) {
	ref, from := broken(t, store)
	for i, id := range []string{"t2", "t3", "t4"} {
		begun, err := store.BeginTurn(t.Context(), resuming(ref, from, id))
		require.NoError(t, err)
		require.Equal(t, "t1", begun.Turn.Origin)
		require.Equal(t, i+2, begun.Turn.Attempt)
		require.Len(t, begun.Turn.Steps, 1)
		require.EqualValues(t, 3, begun.History[len(begun.History)-1].Sequence)
		requireSame(t, rounds(i+2), journal(t, store, holding(ref, begun.Turn), 2))
		record(t, store, holding(ref, begun.Turn), 2, rounds(i+3)...)
		before := from
		from, err = store.FailTurn(t.Context(), failing(ref, begun.Turn, session.OutcomeFailed))
		require.NoError(t, err)
		require.Equal(t, "t1", from.Origin)
		_, err = store.BeginTurn(t.Context(), resuming(ref, before, "late"))
		requireMode(t, err, failure.TurnNotOpen, "turn_id", before.ID)
	}
}

// resumeKeepsJournalsOfSeveralSteps is a round of steps beside each other: one is done, one failed
// in a way that the turn survived, and two are to be done again.
func resumeKeepsJournalsOfSeveralSteps(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	for step := 2; step <= 5; step++ {
		record(t, store, holding(ref, turn), step, rounds(step)...)
	}
	for _, step := range []int{1, 3} {
		c := answering(ref, turn, "aside", session.OutcomeOpen)
		c.Messages, c.Result.Step = nil, step
		commit(t, store, c)
	}
	from, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	ask := resuming(ref, from, "t2")
	survived := execution.Result{Step: 2, Agent: "echo", Failure: failure.New(failure.ResourceAPI, "test", "away")}
	ask.Inherited = []execution.Result{from.Steps[0], survived, from.Steps[1]}
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	requireSame(t, inherited(from.Steps[0], survived, from.Steps[1]), begun.Turn.Steps)
	for step := 1; step <= 5; step++ {
		kept := []execution.Entry{}
		if step >= 4 {
			kept = rounds(step)
		}
		requireSame(t, kept, journal(t, store, holding(ref, begun.Turn), step))
	}
	for step := 4; step <= 5; step++ {
		c := answering(ref, begun.Turn, "done", session.OutcomeOpen)
		c.Messages, c.Result.Step = nil, step
		commit(t, store, c)
	}
}

func resumeRefusesWhatDidNotFail(t *testing.T, store memory.Store) {
	ref := fresh()
	for i, end := range []session.Outcome{session.OutcomeCompleted, session.OutcomeCancelled, session.OutcomeInputRequired} {
		turn := begin(t, store, ref, fmt.Sprintf("t%d", i), "hello")
		if end == session.OutcomeCancelled {
			_, err := store.FailTurn(t.Context(), failing(ref, turn, end))
			require.NoError(t, err)
		} else {
			commit(t, store, answering(ref, turn, "hi", end))
		}
		before := visible(t, store, ref)
		_, err := store.BeginTurn(t.Context(), resuming(ref, turn, "next"))
		requireMode(t, err, failure.TurnNotOpen, "turn_id", turn.ID)
		requireSame(t, before, visible(t, store, ref))
	}
	for _, where := range []session.Ref{ref, fresh()} {
		_, err := store.BeginTurn(t.Context(), resuming(where, session.Turn{ID: "unknown"}, "next"))
		requireMode(t, err, failure.TurnNotOpen, "turn_id", "unknown")
	}
}

func resumeRefusesWhenTheSessionWentOn(t *testing.T, store memory.Store) {
	for name, goOn := range map[string]func(ref session.Ref){
		"a turn":                            func(ref session.Ref) { converse(t, store, ref, "t5", "and now?", "well") },
		"cleared":                           func(ref session.Ref) { require.NoError(t, store.ClearSession(t.Context(), ref)) },
		"compacted":                         func(ref session.Ref) { compacted(t, store, ref) },
		"a failure":                         func(ref session.Ref) { fails(t, store, ref) },
		"one that is open, without a lease": func(ref session.Ref) { release(t, store, ref, begin(t, store, ref, "t5", "wait")) },
	} {
		ref, from := broken(t, store)
		goOn(ref)
		before := visible(t, store, ref)
		_, err := store.BeginTurn(t.Context(), resuming(ref, from, "t9"))
		require.ErrorContains(t, err, "t1", name)
		requireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
		requireSame(t, before, visible(t, store, ref))
	}

	// What does not add to the session is no reason.
	ref, from := broken(t, store)
	for _, verb := range []session.Verb{session.Pause, session.Resume, session.Close} {
		_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Verb: verb})
		require.NoError(t, err)
	}
	_, err := store.BeginTurn(t.Context(), resuming(ref, from, "t9"))
	requireMode(t, err, failure.SessionClosed)
	_, err = store.UpdateSession(t.Context(), memory.Update{Ref: ref, Verb: session.Resume})
	require.NoError(t, err)
	stranger := resuming(ref, from, "t9")
	stranger.User = "mallory"
	_, err = store.BeginTurn(t.Context(), stranger)
	requireMode(t, err, failure.NotFound)
	_, err = store.BeginTurn(t.Context(), resuming(ref, from, "t9"))
	require.NoError(t, err)
}

// compacted puts a summary in the place of all messages but the last.
func compacted(t *testing.T, store memory.Store, ref session.Ref) {
	t.Helper()
	_, err := store.CompactSession(t.Context(), memory.Compact{Ref: ref, Strategy: conversation.Summarize, Keep: 1, Summary: "they talked"})
	require.NoError(t, err)
}

func fails(t *testing.T, store memory.Store, ref session.Ref) {
	t.Helper()
	_, err := store.FailTurn(t.Context(), failing(ref, begin(t, store, ref, "t5", "and now?"), session.OutcomeFailed))
	require.NoError(t, err)
}

func resumeRefusesPartsThatDoNotFit(t *testing.T, store memory.Store) {
	ref, from := broken(t, store)
	for field, change := range map[string]func(b *memory.Begin){
		"resumes_turn_id": func(b *memory.Begin) { b.Message = conversation.User("and this") },
		"inherited":       func(b *memory.Begin) { b.Resumes = "" },
		"order":           func(b *memory.Begin) { b.Inherited = append(b.Inherited, b.Inherited...) },
		"copy":            func(b *memory.Begin) { b.Resumes, b.Copy = "", &memory.Copy{} },
	} {
		b := resuming(ref, from, "t2")
		change(&b)
		_, err := store.BeginTurn(t.Context(), b)
		requireMode(t, err, failure.UserInvalidInput)
		require.ErrorContains(t, err, field)
	}
}
