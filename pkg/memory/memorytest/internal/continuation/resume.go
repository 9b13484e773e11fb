package continuation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func resumeTests() fixture.Tests {
	return fixture.Tests{
		"Resume_ReplacesTheFailedTurn":       resumeReplacesTheFailedTurn,
		"Resume_RepeatReturnsTheSameTurn":    resumeRepeatReturnsTheSameTurn,
		"Resume_TurnCanBeTakenOver":          resumeTurnCanBeTakenOver,
		"Resume_FailedTurnCanBeResumedAgain": resumeFailedTurnCanBeResumedAgain,
		"Resume_KeepsJournalsOfSeveralSteps": resumeKeepsJournalsOfSeveralSteps,
		"Resume_RejectsATurnThatDidNotFail":  resumeRejectsATurnThatDidNotFail,
		"Resume_RejectsAChangedSession":      resumeRejectsAChangedSession,
		"Resume_RejectsConflictingFields":    resumeRejectsConflictingFields,
	}
}

// newFailedTurn returns a session and its last turn, t1, which failed in the second step after two rounds.
func newFailedTurn(t *testing.T, store memory.Store) (session.Ref, session.Turn) {
	t.Helper()
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t0", "hello", "hi")
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	turn.Sequence = fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "first", session.OutcomeOpen))
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 2, fixture.ModelRounds(2)...)
	failed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	return ref, failed
}

func markInherited(results ...execution.Result) []execution.Result {
	for i := range results {
		results[i].Inherited = true
	}
	return results
}

// resumeReplacesTheFailedTurn checks that the new turn gets the window, the results and the journal of the failed
// turn, and adds no message.
// Req: OC-27
func resumeReplacesTheFailedTurn(t *testing.T, store memory.Store) {
	ref, from := newFailedTurn(t, store)
	before := fixture.GetSession(t, store, ref)
	ask := fixture.NewResumption(ref, from, "t2")
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	first := fixture.NewCommit(ref, from, "first", session.OutcomeOpen).Result
	first.Sequence = 4
	fixture.RequireEqual(t, memory.BeginResult{
		Status: memory.StatusBegun, Messages: 5,
		Turn: session.Turn{
			ID: "t2", Trace: ask.TraceID, Number: 3, Epoch: begun.Turn.Epoch, Attempt: 2, Sequence: 5,
			Steps: markInherited(first), OriginTurnID: "t1",
		},
		History: []conversation.Message{
			{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1},
			{Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Text: "hi", Turn: 1},
			{Sequence: 3, Role: conversation.RoleUser, Text: "read on", Turn: 2},
		},
	}, begun)
	require.Greater(t, begun.Turn.Epoch, from.Epoch)
	require.Equal(t, before.Size.Messages, fixture.GetSession(t, store, ref).Size.Messages)

	h := fixture.LeaseOf(ref, begun.Turn)
	fixture.RequireEqual(t, fixture.ModelRounds(2), fixture.LoadJournal(t, store, h, 2))
	fixture.RecordEntries(t, store, h, 2, fixture.ModelRounds(3)...)
	again := fixture.NewCommit(ref, begun.Turn, "first", session.OutcomeOpen)
	_, err = store.CommitStep(t.Context(), again)
	fixture.RequireMode(t, err, failure.TurnNotOpen, "step", "1")
	c := fixture.NewCommit(ref, begun.Turn, "second", session.OutcomeCompleted)
	c.Result.Step = 2
	require.EqualValues(t, 6, fixture.CommitStep(t, store, c))
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
	require.Equal(t, []string{"1 hello", "2 hi", "3 read on", "4 first", "5 looking at page 0\n\nlooking at page 1", "6 second"},
		messageTexts(fixture.LoadHistory(t, store, ref)))
}

func resumeRepeatReturnsTheSameTurn(t *testing.T, store memory.Store) {
	ref, from := newFailedTurn(t, store)
	ask := fixture.NewResumption(ref, from, "t2")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	for _, lookupOnly := range []bool{false, true} {
		ask.LookupOnly = lookupOnly
		again, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		fixture.RequireEqual(t, first, again)
	}
	other := fixture.NewResumption(ref, from, "t2")
	found, err := store.BeginTurn(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, found.Status)
	fixture.RequireEqual(t, first.Turn, found.Turn)
	other.Fingerprint = "another"
	_, err = store.BeginTurn(t.Context(), other)
	fixture.RequireMode(t, err, failure.KeyReused, "turn_id", "t2")
	_, err = store.BeginTurn(t.Context(), fixture.NewResumption(ref, from, "t3"))
	fixture.RequireMode(t, err, failure.SessionBusy, "turn_id", "t2")
}

// resumeTurnCanBeTakenOver takes the turn over twice: after the loss of the caller that resumed it, and after the
// loss of a worker.
func resumeTurnCanBeTakenOver(t *testing.T, store memory.Store) {
	ref, from := newFailedTurn(t, store)
	ask := fixture.NewResumption(ref, from, "t2")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.ReleaseTurn(t, store, ref, first.Turn)
	ask = fixture.NewBegin(ref, "t2", "") // the caller that takes over does not know the original request
	ask.Message = conversation.Message{}
	for attempt := 3; attempt < 5; attempt++ {
		next, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		want := first
		want.Turn.Attempt, want.Turn.Epoch = attempt, next.Turn.Epoch
		fixture.RequireEqual(t, want, next)
		fixture.RequireEqual(t, fixture.ModelRounds(2), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, next.Turn), 2))
		ask.LostEpoch = next.Turn.Epoch
	}
	fixture.RequireFenced(t, store, ref, first.Turn)
}

// resumeFailedTurnCanBeResumedAgain checks that a second resume keeps the first results and the origin of the
// first turn.
func resumeFailedTurnCanBeResumedAgain(t *testing.T, store memory.Store) {
	ref, from := newFailedTurn(t, store)
	for i, id := range []string{"t2", "t3", "t4"} {
		begun, err := store.BeginTurn(t.Context(), fixture.NewResumption(ref, from, id))
		require.NoError(t, err)
		require.Equal(t, "t1", begun.Turn.OriginTurnID)
		require.Equal(t, i+2, begun.Turn.Attempt)
		require.Len(t, begun.Turn.Steps, 1)
		require.EqualValues(t, 3, begun.History[len(begun.History)-1].Sequence)
		fixture.RequireEqual(t, fixture.ModelRounds(i+2), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, begun.Turn), 2))
		fixture.RecordEntries(t, store, fixture.LeaseOf(ref, begun.Turn), 2, fixture.ModelRounds(i+3)...)
		before := from
		from, err = store.FailTurn(t.Context(), fixture.NewFailRequest(ref, begun.Turn, session.OutcomeFailed))
		require.NoError(t, err)
		require.Equal(t, "t1", from.OriginTurnID)
		_, err = store.BeginTurn(t.Context(), fixture.NewResumption(ref, before, "late"))
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", before.ID)
	}
}

// resumeKeepsJournalsOfSeveralSteps resumes a round of four concurrent steps: one is done, one has failed without
// failing the turn, and two must run again.
func resumeKeepsJournalsOfSeveralSteps(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	for step := 2; step <= 5; step++ {
		fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), step, fixture.ModelRounds(step)...)
	}
	for _, step := range []int{1, 3} {
		c := fixture.NewCommit(ref, turn, "aside", session.OutcomeOpen)
		c.Messages, c.Result.Step = nil, step
		fixture.CommitStep(t, store, c)
	}
	from, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	ask := fixture.NewResumption(ref, from, "t2")
	survived := execution.Result{Step: 2, Agent: "echo", Failure: failure.New(failure.ResourceAPI, "test", "away")}
	ask.Predecessor.Inherited = []execution.Result{from.Steps[0], survived, from.Steps[1]}
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.RequireEqual(t, markInherited(from.Steps[0], survived, from.Steps[1]), begun.Turn.Steps)
	for step := 1; step <= 5; step++ {
		kept := []execution.Entry{}
		if step >= 4 {
			kept = fixture.ModelRounds(step)
		}
		fixture.RequireEqual(t, kept, fixture.LoadJournal(t, store, fixture.LeaseOf(ref, begun.Turn), step))
	}
	for step := 4; step <= 5; step++ {
		c := fixture.NewCommit(ref, begun.Turn, "done", session.OutcomeOpen)
		c.Messages, c.Result.Step = nil, step
		fixture.CommitStep(t, store, c)
	}
}

func resumeRejectsATurnThatDidNotFail(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for i, end := range []session.Outcome{session.OutcomeCompleted, session.OutcomeCancelled, session.OutcomeInputRequired} {
		turn := fixture.BeginTurn(t, store, ref, fmt.Sprintf("t%d", i), "hello")
		if end == session.OutcomeCancelled {
			_, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, end))
			require.NoError(t, err)
		} else {
			fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "hi", end))
		}
		before := fixture.ReadSession(t, store, ref)
		_, err := store.BeginTurn(t.Context(), fixture.NewResumption(ref, turn, "next"))
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", turn.ID)
		fixture.RequireEqual(t, before, fixture.ReadSession(t, store, ref))
	}
	for _, where := range []session.Ref{ref, fixture.NewRef()} {
		_, err := store.BeginTurn(t.Context(), fixture.NewResumption(where, session.Turn{ID: "unknown"}, "next"))
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "unknown")
	}
}

func resumeRejectsAChangedSession(t *testing.T, store memory.Store) {
	for name, change := range map[string]func(ref session.Ref){
		"a turn":    func(ref session.Ref) { fixture.RunTurn(t, store, ref, "t5", "and now?", "well") },
		"cleared":   func(ref session.Ref) { require.NoError(t, store.ClearSession(t.Context(), ref)) },
		"compacted": func(ref session.Ref) { compactSession(t, store, ref) },
		"a failure": func(ref session.Ref) { failTurn(t, store, ref) },
		"one that is open, without a lease": func(ref session.Ref) {
			fixture.ReleaseTurn(t, store, ref, fixture.BeginTurn(t, store, ref, "t5", "wait"))
		},
	} {
		ref, from := newFailedTurn(t, store)
		change(ref)
		before := fixture.ReadSession(t, store, ref)
		_, err := store.BeginTurn(t.Context(), fixture.NewResumption(ref, from, "t9"))
		require.ErrorContains(t, err, "t1", name)
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
		fixture.RequireEqual(t, before, fixture.ReadSession(t, store, ref))
	}

	// A failed turn can still be resumed after changes that add no message to the session.
	ref, from := newFailedTurn(t, store)
	for _, verb := range []session.Verb{session.Pause, session.Resume, session.Close} {
		_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: verb})
		require.NoError(t, err)
	}
	_, err := store.BeginTurn(t.Context(), fixture.NewResumption(ref, from, "t9"))
	fixture.RequireMode(t, err, failure.SessionClosed)
	_, err = store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Resume})
	require.NoError(t, err)
	stranger := fixture.NewResumption(ref, from, "t9")
	stranger.User = "mallory"
	_, err = store.BeginTurn(t.Context(), stranger)
	fixture.RequireMode(t, err, failure.NotFound)
	_, err = store.BeginTurn(t.Context(), fixture.NewResumption(ref, from, "t9"))
	require.NoError(t, err)
}

// compactSession replaces all messages but the last with a summary.
func compactSession(t *testing.T, store memory.Store, ref session.Ref) {
	t.Helper()
	_, err := store.CompactSession(t.Context(), memory.Compact{Ref: ref, Strategy: conversation.Summarize, Keep: 1, Summary: "they talked"})
	require.NoError(t, err)
}

func failTurn(t *testing.T, store memory.Store, ref session.Ref) {
	t.Helper()
	_, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, fixture.BeginTurn(t, store, ref, "t5", "and now?"), session.OutcomeFailed))
	require.NoError(t, err)
}

func resumeRejectsConflictingFields(t *testing.T, store memory.Store) {
	ref, from := newFailedTurn(t, store)
	for field, change := range map[string]func(b *memory.Begin){
		"resumes_turn_id": func(b *memory.Begin) { b.Message = conversation.User("and this") },
		"inherited":       func(b *memory.Begin) { b.Predecessor.Resumes = "" },
		"order": func(b *memory.Begin) {
			b.Predecessor.Inherited = append(b.Predecessor.Inherited, b.Predecessor.Inherited...)
		},
		"copy": func(b *memory.Begin) { b.Predecessor.Resumes, b.Predecessor.Copy = "", &memory.Copy{} },
	} {
		b := fixture.NewResumption(ref, from, "t2")
		change(&b)
		_, err := store.BeginTurn(t.Context(), b)
		fixture.RequireMode(t, err, failure.UserInvalidInput)
		require.ErrorContains(t, err, field)
	}
}
