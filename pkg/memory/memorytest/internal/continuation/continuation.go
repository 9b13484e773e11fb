// Package continuation tests turns that replace an earlier one: turns that answer its waiting calls, resume it
// after a failure, or begin in a copy of its session.
package continuation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Tests returns the tests of this package by name.
func Tests() fixture.Tests {
	return fixture.Merge(waitingCallTests(), waitingBranchTests(), continuationTests(), continuationEdgeCaseTests(), resumeTests(), copyTests())
}

func waitingCallTests() fixture.Tests {
	return fixture.Tests{
		"WaitingCalls_EndTheTurn":                               waitingCallsEndTheTurn,
		"WaitingCalls_CommitIsIdempotent":                       waitingCallsCommitIsIdempotent,
		"WaitingCalls_RejectOtherOutcomes":                      waitingCallsRejectOtherOutcomes,
		"WaitingCalls_ForACredentialSetAuthRequired":            waitingCallsForACredentialSetAuthRequired,
		"WaitingCalls_TooManyAreRejected":                       waitingCallsTooManyAreRejected,
		"WaitingCalls_BelongToTheLastStep":                      waitingCallsBelongToTheLastStep,
		"WaitingCalls_SurviveChangesOfTheSession":               waitingCallsSurviveChangesOfTheSession,
		"WaitingCalls_AreDroppedByANewMessage":                  waitingCallsAreDroppedByANewMessage,
		"WaitingCalls_AreDroppedByAClear":                       waitingCallsAreDroppedByAClear,
		"WaitingCalls_AreEmptyForAQuestion":                     waitingCallsAreEmptyForAQuestion,
		"WaitingCalls_AreDeletedWithTheSession":                 waitingCallsAreDeletedWithTheSession,
		"WaitingCalls_StayInTheClosedTurn":                      waitingCallsStayInTheClosedTurn,
		"WaitingCalls_JournalIsUnreadableUntilTheTurnContinues": waitingCallsJournalIsUnreadableUntilTheTurnContinues,
	}
}

// newInterruptedJournal returns the journal of a step that ended within its second round. The tool of the first
// round has run. The tool of the second round may have run.
func newInterruptedJournal() []execution.Entry { return fixture.ModelRounds(2)[:5] }

// newWaitingTurn returns a session and its turn t1, whose first step is done and whose second step has waiting
// calls. The window of the turn ends with its message, at sequence 3.
func newWaitingTurn(t *testing.T, store memory.Store) (session.Ref, session.Turn) {
	t.Helper()
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t0", "hello", "hi")
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	turn.Sequence = fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "first", session.OutcomeOpen))
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 2, newInterruptedJournal()...)
	turn.Sequence = fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, turn, 2))
	return ref, turn
}

func waitingCallsEndTheTurn(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	s := fixture.GetSession(t, store, ref)
	fixture.RequireEqual(t, session.Session{
		ID: ref.Session, State: session.InputRequired, Turns: 2, Size: session.Size{Messages: 5}, LastSequence: 5,
		WaitingTurn: "t1", Pending: fixture.NewPendingCalls(2), LastTrace: turn.Trace,
	}, s)

	// A listed session has the id of the waiting turn, but not its calls.
	u := memory.SessionUpdate{Ref: fixture.NewRef(), Create: true, User: fixture.UniqueName("alice")}
	fixture.UpdateSession(t, store, u)
	ask := fixture.NewBegin(u.Ref, "t1", "read")
	ask.User = u.User
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.CommitStep(t, store, fixture.NewWaitingCommit(u.Ref, begun.Turn, 1))
	listed := fixture.ListSessions(t, store, u.User)
	require.Len(t, listed, 1)
	want := fixture.GetSession(t, store, u.Ref)
	require.Len(t, want.Pending, 2)
	want.Pending = nil
	fixture.RequireEqual(t, want, listed[0])
	require.Equal(t, "t1", listed[0].WaitingTurn)
}

func waitingCallsCommitIsIdempotent(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	c := fixture.NewWaitingCommit(ref, turn, 2)
	c.Base = 4
	require.EqualValues(t, 5, fixture.CommitStep(t, store, c))
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).WaitingTurn)

	// Once another turn has continued the calls, they no longer wait.
	next := continueTurn(t, store, ref, turn, "t2")
	require.EqualValues(t, 5, fixture.CommitStep(t, store, c))
	s := fixture.GetSession(t, store, ref)
	require.Empty(t, s.WaitingTurn)
	require.Equal(t, "t2", s.OpenTurn)
	fixture.RequireEqual(t, newInterruptedJournal(), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, next), 2))

	// A commit with other calls is a different commit.
	c.Result.Pending = c.Result.Pending[:1]
	_, err := store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.Fenced)
}

func waitingCallsRejectOtherOutcomes(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	for _, outcome := range []session.Outcome{session.OutcomeOpen, session.OutcomeCompleted, session.OutcomeAuthRequired} {
		c := fixture.NewWaitingCommit(ref, turn, 1)
		c.Outcome = outcome
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.UserInvalidInput)
		require.ErrorContains(t, err, "outcome")
	}
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).OpenTurn)
	fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, turn, 1))
}

// A call that needs a credential gives the turn the outcome auth_required. The store keeps the sealed answer
// unchanged.
// Req: LP-40
func waitingCallsForACredentialSetAuthRequired(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	c := fixture.NewWaitingCommit(ref, turn, 1)
	c.Result.Pending = append(c.Result.Pending, execution.Pending{
		ID: pendingcall.ID(1, 1, 6), Tool: "fetch", Arguments: "{}", Needs: execution.NeedAuth, Until: c.Result.Pending[0].Until,
		Auth: &execution.PendingAuth{
			Login: execution.Login{Name: "mailbox", Prompt: "The password.", URL: "https://example.org"},
			ID:    "key@echo-1", Key: []byte("\xffpublic"), Expires: c.Result.Pending[0].Until,
		},
	})
	for _, outcome := range []session.Outcome{session.OutcomeInputRequired, session.OutcomeCompleted, session.OutcomeOpen} {
		c.Outcome = outcome
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.UserInvalidInput)
		require.ErrorContains(t, err, "auth_required")
	}
	c.Outcome = session.OutcomeAuthRequired
	turn.Sequence = fixture.CommitStep(t, store, c)
	s := fixture.GetSession(t, store, ref)
	require.Equal(t, session.AuthRequired, s.State)
	require.Equal(t, "t1", s.WaitingTurn)
	fixture.RequireEqual(t, c.Result.Pending, s.Pending)

	b := fixture.NewContinuation(ref, turn, "t2")
	b.Predecessor.Answers = []execution.Answer{{ID: pendingcall.ID(1, 1, 6), Verdict: execution.Approve, Sealed: "\xffsealed", AuthID: "key@echo-1"}}
	begun, err := store.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	fixture.RequireEqual(t, b.Predecessor.Answers, begun.Turn.Answers)
	require.Equal(t, session.Busy, fixture.GetSession(t, store, ref).State)
	b.LookupOnly = true
	begun, err = store.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	fixture.RequireEqual(t, b.Predecessor.Answers, begun.Turn.Answers)
}

func waitingCallsTooManyAreRejected(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	c := fixture.NewWaitingCommit(ref, turn, 1)
	c.Result.Pending = nil
	for i := range execution.MaxPending + 1 {
		c.Result.Pending = append(c.Result.Pending, execution.Pending{
			ID: pendingcall.ID(1, 1, i), Tool: "read", Arguments: "{}",
			Needs: execution.NeedApproval,
		})
	}
	_, err := store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.UserInvalidInput)
	require.ErrorContains(t, err, "pending")
	c.Result.Pending = c.Result.Pending[1:]
	fixture.CommitStep(t, store, c)
	require.Len(t, fixture.GetSession(t, store, ref).Pending, execution.MaxPending)
}

func waitingCallsBelongToTheLastStep(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	c := fixture.NewCommit(ref, turn, "second", session.OutcomeOpen)
	c.Result.Step = 2
	turn.Sequence = fixture.CommitStep(t, store, c)
	_, err := store.CommitStep(t.Context(), fixture.NewWaitingCommit(ref, turn, 1))
	fixture.RequireMode(t, err, failure.UserInvalidInput, "turn_id", "t1", "step", "1")
	fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, turn, 3))
}

// Changes of a session between its turns leave the waiting calls unchanged.
func waitingCallsSurviveChangesOfTheSession(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	for _, u := range []memory.SessionUpdate{
		{Ref: ref, Metadata: map[string]string{"title": "Pages"}},
		{Ref: ref, Verb: session.Pause},
		{Ref: ref, Verb: session.Resume},
		{Ref: ref, Verb: session.Close},
		{Ref: ref, Verb: session.Resume},
		{Ref: ref, Verb: session.Pause},
	} {
		updated, err := store.UpdateSession(t.Context(), u)
		require.NoError(t, err)
		require.Equal(t, "t1", updated.WaitingTurn)
		require.Len(t, fixture.GetSession(t, store, ref).Pending, 2)
	}
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "mood", `"calm"`))
	next := continueTurn(t, store, ref, turn, "t2")
	require.Equal(t, session.Busy, fixture.GetSession(t, store, ref).State, "a turn resumes a paused session")
	fixture.RequireEqual(t, newInterruptedJournal(), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, next), 2))
}

// A new turn that does not continue the waiting calls drops them for good, whether or not it has a message.
func waitingCallsAreDroppedByANewMessage(t *testing.T, store memory.Store) {
	for name, ask := range map[string]func(session.Ref) memory.Begin{
		"message": func(ref session.Ref) memory.Begin { return fixture.NewBegin(ref, "t2", "never mind") },
		"nothing": func(ref session.Ref) memory.Begin { return fixture.NewBeginWithoutMessage(ref, "t2") },
	} {
		ref, turn := newWaitingTurn(t, store)
		begun, err := store.BeginTurn(t.Context(), ask(ref))
		require.NoError(t, err)
		require.Equal(t, 1, begun.Turn.Attempt, name)
		require.Empty(t, begun.Turn.Continues)
		require.Empty(t, begun.Turn.Steps)
		s := fixture.GetSession(t, store, ref)
		require.Empty(t, s.WaitingTurn)
		require.Empty(t, s.Pending)
		require.Empty(t, fixture.LoadJournal(t, store, fixture.LeaseOf(ref, begun.Turn), 1))
		_, err = store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t3"))
		fixture.RequireMode(t, err, failure.SessionBusy, "turn_id", "t2")
		fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "fine", session.OutcomeCompleted))
		_, err = store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t3"))
		fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
		require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
	}
}

func waitingCallsAreDroppedByAClear(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	require.NoError(t, store.ClearSession(t.Context(), ref))
	s := fixture.GetSession(t, store, ref)
	require.Empty(t, s.WaitingTurn)
	require.Empty(t, s.Pending)
	require.Equal(t, session.InputRequired, s.State)
	_, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	require.Equal(t, fixture.NewPendingCalls(2), fixture.RepeatBeginTurn(t, store, ref).Steps[1].Pending, "what was answered stays answered")
	require.Equal(t, 1, fixture.BeginTurn(t, store, ref, "t3", "hello").Attempt)
}

func waitingCallsAreEmptyForAQuestion(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "book it")
	c := fixture.NewCommit(ref, turn, "for when?", session.OutcomeInputRequired)
	c.Result.InputRequired = true
	fixture.CommitStep(t, store, c)
	require.Empty(t, fixture.GetSession(t, store, ref).WaitingTurn)
	_, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
}

func waitingCallsAreDeletedWithTheSession(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	fixture.DeleteSession(t, store, ref)
	_, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	fixture.RequireMode(t, err, failure.SessionDeleted)
	_, err = store.CommitStep(t.Context(), fixture.NewWaitingCommit(ref, turn, 2))
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

// A repeated request for the closed turn returns the waiting calls, even after they were answered.
func waitingCallsStayInTheClosedTurn(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	check := func() {
		t.Helper()
		closed := fixture.RepeatBeginTurn(t, store, ref)
		require.Equal(t, session.OutcomeInputRequired, closed.Outcome)
		require.Len(t, closed.Steps, 2)
		fixture.RequireEqual(t, fixture.NewPendingCalls(2), closed.Steps[1].Pending)
	}
	check()
	continueTurn(t, store, ref, turn, "t2")
	check()
}

func waitingCallsJournalIsUnreadableUntilTheTurnContinues(t *testing.T, store memory.Store) {
	ref, turn := newWaitingTurn(t, store)
	for name, call := range fixture.TurnCalls(store, fixture.LeaseOf(ref, turn)) {
		fixture.RequireMode(t, call(t), failure.TurnNotOpen, "turn_id", "t1")
		require.Equal(t, "t1", fixture.GetSession(t, store, ref).WaitingTurn, name)
	}
	c := fixture.NewCommit(ref, turn, "more", session.OutcomeCompleted)
	c.Result.Step = 3
	_, err := store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	closed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeInputRequired, closed.Outcome)
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).WaitingTurn, "to fail what has ended changes nothing")
}

// continueTurn begins a turn that continues another turn and answers all of its calls.
func continueTurn(t *testing.T, store memory.Store, ref session.Ref, from session.Turn, turnID string) session.Turn {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, from, turnID))
	require.NoError(t, err)
	require.Equal(t, memory.StatusBegun, begun.Status)
	return begun.Turn
}

// messageTexts returns the texts of messages, each with its sequence.
func messageTexts(messages []conversation.Message) []string {
	texts := make([]string, len(messages))
	for i, m := range messages {
		texts[i] = fmt.Sprintf("%d %s", m.Sequence, m.Text)
	}
	return texts
}
