package continuation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func waitingBranchTests() fixture.Tests {
	return fixture.Tests{
		"WaitingBranches_EndTheTurn":                waitingBranchesEndTheTurn,
		"WaitingBranches_ContinueTogether":          waitingBranchesContinueTogether,
		"WaitingBranches_SomeMayWaitAgain":          waitingBranchesSomeMayWaitAgain,
		"WaitingBranches_AreDroppedByANewMessage":   waitingBranchesAreDroppedByANewMessage,
		"WaitingBranches_JournalsSurviveAFailure":   waitingBranchesJournalsSurviveAFailure,
		"WaitingBranches_RejectResultsThatDoNotFit": waitingBranchesRejectResultsThatDoNotFit,
		"WaitingBranches_NeedACredentialForAuth":    waitingBranchesNeedACredentialForAuth,
		"WaitingBranches_RejectResultsOfOldEpochs":  waitingBranchesRejectResultsOfOldEpochs,
		"WaitingBranches_KeepTheSourceThatTheyRead": waitingBranchesKeepTheSourceThatTheyRead,
		"WaitingBranches_RejectCommittedSteps":      waitingBranchesRejectCommittedSteps,
	}
}

// waitingResult returns the result of a branch whose calls wait.
func waitingResult(step int) execution.Result {
	return execution.Result{Step: step, Agent: "echo", Text: "read and locate wait", InputRequired: true, Pending: fixture.NewPendingCalls(step), Sequence: 2}
}

// newSuspension returns the request that ends a turn because calls of steps 2 and 4 wait. Step 5 has failed.
func newSuspension(ref session.Ref, turn session.Turn) memory.Fail {
	failed := execution.Result{Step: 5, Agent: "echo", Failure: failure.New(failure.ResourceAPI, "model.Generate", "the model does not answer")}
	return memory.Fail{
		Ref: ref, TurnID: turn.ID, Epoch: turn.Epoch, Outcome: session.OutcomeInputRequired,
		Results: []execution.Result{waitingResult(2), waitingResult(4), failed},
	}
}

// newWaitingBranches returns a session and its turn t1. Its step 1 led to the branches 2 to 5: step 3 is committed, calls
// of 2 and 4 wait, and 5 failed.
func newWaitingBranches(t *testing.T, store memory.Store) (session.Ref, session.Turn) {
	t.Helper()
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	turn.Sequence = fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "first", session.OutcomeOpen))
	commitBranch(t, store, ref, turn, 3)
	for _, step := range []int{2, 4, 5} {
		fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), step, newInterruptedJournal()...)
	}
	closed, err := store.FailTurn(t.Context(), newSuspension(ref, turn))
	require.NoError(t, err)
	return ref, closed
}

// commitBranch commits a step that adds no message.
func commitBranch(t *testing.T, store memory.Store, ref session.Ref, turn session.Turn, step int) {
	t.Helper()
	c := fixture.NewCommit(ref, turn, "branch", session.OutcomeOpen)
	c.Messages, c.Result.Step = nil, step
	fixture.CommitStep(t, store, c)
}

func stepNumbers(turn session.Turn) (numbers []int) {
	for _, r := range turn.Steps {
		numbers = append(numbers, r.Step)
	}
	return numbers
}

// The turn ends with all results, and the session lists the calls of all branches.
func waitingBranchesEndTheTurn(t *testing.T, store memory.Store) {
	ref, closed := newWaitingBranches(t, store)
	require.Equal(t, session.OutcomeInputRequired, closed.Outcome)
	require.Equal(t, []int{1, 2, 3, 4, 5}, stepNumbers(closed))
	require.Nil(t, closed.Failure)
	fixture.RequireEqual(t, waitingResult(2), closed.Steps[1])
	require.Equal(t, failure.ResourceAPI, closed.Steps[4].Failure.Mode)
	pending := append(fixture.NewPendingCalls(2), fixture.NewPendingCalls(4)...)
	fixture.RequireEqual(t, session.Session{
		ID: ref.Session, State: session.InputRequired, Turns: 1, Size: session.Size{Messages: 2}, LastSequence: 2,
		WaitingTurn: "t1", Pending: pending, LastTrace: closed.Trace,
	}, fixture.GetSession(t, store, ref))
	again, err := store.FailTurn(t.Context(), newSuspension(ref, closed))
	require.NoError(t, err, "a closed turn is returned")
	fixture.RequireEqual(t, closed, again)
	fixture.RequireEqual(t, closed, fixture.RepeatBeginTurn(t, store, ref))
}

// Both branches continue with their journals. The others are not run again, and no later step is committed before.
func waitingBranchesContinueTogether(t *testing.T, store memory.Store) {
	ref, turn := newWaitingBranches(t, store)
	next := continueTurn(t, store, ref, turn, "t2")
	require.Equal(t, []int{1, 3, 5}, stepNumbers(next))
	for _, r := range next.Steps {
		require.True(t, r.Inherited, r.Step)
	}
	require.Equal(t, failure.ResourceAPI, next.Steps[2].Failure.Mode)
	h := fixture.LeaseOf(ref, next)
	for _, step := range []int{2, 4} {
		fixture.RequireEqual(t, newInterruptedJournal(), fixture.LoadJournal(t, store, h, step))
		fixture.RecordEntries(t, store, h, step, fixture.ModelRounds(3)...)
	}
	join := fixture.NewCommit(ref, next, "joined", session.OutcomeCompleted)
	join.Result.Step = 6
	for _, step := range []int{4, 2} {
		_, err := store.CommitStep(t.Context(), join)
		fixture.RequireMode(t, err, failure.UserInvalidInput, "turn_id", "t2", "step", "6")
		commitBranch(t, store, ref, next, step)
	}
	require.EqualValues(t, 3, fixture.CommitStep(t, store, join))
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6}, stepNumbers(repeatContinuation(t, store, ref, turn)))
}

// A branch may wait again, alone. What the others did is kept.
func waitingBranchesSomeMayWaitAgain(t *testing.T, store memory.Store) {
	ref, turn := newWaitingBranches(t, store)
	next := continueTurn(t, store, ref, turn, "t2")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, next), 4, fixture.ModelRounds(3)...)
	commitBranch(t, store, ref, next, 2)
	closed, err := store.FailTurn(t.Context(), memory.Fail{
		Ref: ref, TurnID: "t2", Epoch: next.Epoch, Outcome: session.OutcomeInputRequired, Results: []execution.Result{waitingResult(4)},
	})
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3, 4, 5}, stepNumbers(closed))
	fixture.RequireEqual(t, fixture.NewPendingCalls(4), fixture.GetSession(t, store, ref).Pending)
	last := continueTurn(t, store, ref, closed, "t3")
	require.Equal(t, []int{1, 2, 3, 5}, stepNumbers(last))
	fixture.RequireEqual(t, fixture.ModelRounds(3), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, last), 4))
	commitBranch(t, store, ref, last, 4)
	_, err = store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t4"))
	fixture.RequireMode(t, err, failure.SessionBusy)
}

func waitingBranchesAreDroppedByANewMessage(t *testing.T, store memory.Store) {
	ref, turn := newWaitingBranches(t, store)
	fixture.RunTurn(t, store, ref, "t2", "never mind", "fine")
	s := fixture.GetSession(t, store, ref)
	require.Empty(t, s.WaitingTurn)
	require.Empty(t, s.Pending)
	_, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t3"))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
}

// A turn that resumes a failed continuation has the journals of the branches that were still open.
func waitingBranchesJournalsSurviveAFailure(t *testing.T, store memory.Store) {
	ref, turn := newWaitingBranches(t, store)
	next := continueTurn(t, store, ref, turn, "t2")
	commitBranch(t, store, ref, next, 2)
	failed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, next, session.OutcomeFailed))
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3, 5}, stepNumbers(failed))
	begun, err := store.BeginTurn(t.Context(), fixture.NewResumption(ref, failed, "t3"))
	require.NoError(t, err)
	fixture.RequireEqual(t, newInterruptedJournal(), fixture.LoadJournal(t, store, fixture.LeaseOf(ref, begun.Turn), 4))
}

func waitingBranchesRejectResultsThatDoNotFit(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	for says, change := range map[string]func(*memory.Fail){
		"neither waits nor failed": func(f *memory.Fail) { f.Results[0].Pending = nil },
		"sort the results":         func(f *memory.Fail) { f.Results[1].Step = 2 },
		"0 calls":                  func(f *memory.Fail) { f.Results = f.Results[2:] },
		"which is not auth":        func(f *memory.Fail) { f.Outcome = session.OutcomeAuthRequired },
		"stores none": func(f *memory.Fail) {
			f.Outcome, f.Failure = session.OutcomeFailed, failure.New(failure.NoWorker, "op", "why")
		},
		"needs a reason": func(f *memory.Fail) { f.Outcome, f.Results = session.OutcomeFailed, nil },
		"66 calls are too many": func(f *memory.Fail) {
			for number := range 31 { // each step is within the limit
				for i, step := range []int{2, 4} {
					f.Results[i].Pending = append(f.Results[i].Pending, execution.Pending{
						ID: pendingcall.ID(1, step, 10+number), Tool: "read", Needs: execution.NeedApproval,
					})
				}
			}
		},
	} {
		f := newSuspension(ref, turn)
		change(&f)
		_, err := store.FailTurn(t.Context(), f)
		fixture.RequireMode(t, err, failure.UserInvalidInput)
		require.ErrorContains(t, err, says)
	}
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).OpenTurn)
}

func waitingBranchesNeedACredentialForAuth(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	f := newSuspension(ref, turn)
	f.Outcome, f.Results[1].Pending[0].Needs = session.OutcomeAuthRequired, execution.NeedAuth
	closed, err := store.FailTurn(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeAuthRequired, closed.Outcome)
	require.Equal(t, session.AuthRequired, fixture.GetSession(t, store, ref).State)
	next := continueTurn(t, store, ref, closed, "t2")
	require.Equal(t, []int{5}, stepNumbers(next))
	commitBranch(t, store, ref, next, 2)
}

func waitingBranchesRejectResultsOfOldEpochs(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	fixture.TakeOver(t, store, ref, turn)
	_, err := store.FailTurn(t.Context(), newSuspension(ref, turn))
	fixture.RequireMode(t, err, failure.Fenced)
}

func waitingBranchesKeepTheSourceThatTheyRead(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	f := newSuspension(ref, turn)
	f.Results[0].Untrusted = "tool web"
	_, err := store.FailTurn(t.Context(), f)
	require.NoError(t, err)
	seen, err := store.GetState(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, "tool web", seen.Untrusted)
}

func waitingBranchesRejectCommittedSteps(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read on")
	commitBranch(t, store, ref, turn, 4)
	_, err := store.FailTurn(t.Context(), newSuspension(ref, turn))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "step", "4")
	require.Equal(t, "t1", fixture.GetSession(t, store, ref).OpenTurn)
}

// repeatContinuation repeats the request that began turn t2, and returns the turn.
func repeatContinuation(t *testing.T, store memory.Store, ref session.Ref, turn session.Turn) session.Turn {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	require.NoError(t, err)
	require.Equal(t, memory.StatusClosed, begun.Status)
	return begun.Turn
}
