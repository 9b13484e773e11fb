package turns

import (
	"fmt"
	"strings"
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

func commitTests() fixture.Tests {
	return fixture.Tests{
		"Commit_StoresMessagesAndResult":             commitStoresMessagesAndResult,
		"Commit_IsIdempotent":                        commitIsIdempotent,
		"Commit_RejectsTheSameStepWithAnotherResult": commitRejectsTheSameStepWithAnotherResult,
		"Commit_RejectsClosedTurn":                   commitRejectsClosedTurn,
		"Commit_RejectsWrongBase":                    commitRejectsWrongBase,
		"Commit_RejectsUnknownTurn":                  commitRejectsUnknownTurn,
		"Commit_RejectsOtherEpochs":                  commitRejectsOtherEpochs,
		"Commit_InputRequiredClosesTheTurn":          commitInputRequiredClosesTheTurn,
		"Commit_AuthRequiredClosesTheTurn":           commitAuthRequiredClosesTheTurn,
		"Commit_SuccessorRepeatsALostCommit":         commitSuccessorRepeatsALostCommit,
		"Commit_KeepsToolRounds":                     commitKeepsToolRounds,
		"Commit_FailedStepKeepsItsFailure":           commitFailedStepKeepsItsFailure,
		"Commit_RejectsTooManyMessages":              commitRejectsTooManyMessages,
		"Commit_RejectsTooManyBytes":                 commitRejectsTooManyBytes,
		"Commit_OneConcurrentResultWins":             commitOneConcurrentResultWins,
	}
}

func commitStoresMessagesAndResult(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	sure := 0.75
	first := fixture.NewCommit(ref, turn, "looking", session.OutcomeOpen)
	first.Result = execution.Result{
		Step: 1, Agent: "research", Text: "looking", NextAgent: "synthesis",
		Observations: []string{"Used tool: search"}, ToolsCalled: []string{"search", "search"},
		Iterations: 3, MaxIterations: true, Usage: execution.Usage{InputTokens: 10, OutputTokens: 20, ModelCalls: 3},
		Confidence: &sure,
	}
	require.EqualValues(t, 2, fixture.CommitStep(t, store, first))
	require.Equal(t, session.Busy, fixture.GetSession(t, store, ref).State)

	// A step may commit any number of messages, also none.
	silent := memory.Commit{Ref: ref, TurnID: "t1", Epoch: turn.Epoch, Base: 2, Result: execution.Result{Step: 2, Agent: "router"}}
	require.EqualValues(t, 2, fixture.CommitStep(t, store, silent))
	last := fixture.NewCommit(ref, turn, "done", session.OutcomeCompleted)
	last.Base, last.Result.Step = 2, 3
	last.Messages = append(last.Messages, conversation.Assistant("echo", "really"))
	require.EqualValues(t, 4, fixture.CommitStep(t, store, last))

	fixture.RequireEqual(t, []conversation.Message{
		{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1},
		{Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Text: "looking", Turn: 1},
		{Sequence: 3, Role: conversation.RoleAssistant, Author: "echo", Text: "done", Turn: 1},
		{Sequence: 4, Role: conversation.RoleAssistant, Author: "echo", Text: "really", Turn: 1},
	}, fixture.LoadHistory(t, store, ref))
	s := fixture.GetSession(t, store, ref)
	fixture.RequireEqual(t, session.Session{
		ID: ref.Session, State: session.Ready, Turns: 1, Size: session.Size{Messages: 4}, LastSequence: 4, LastTrace: turn.Trace,
	}, s)

	closed := turn
	closed.Outcome, closed.Sequence = session.OutcomeCompleted, 4
	closed.Steps = []execution.Result{first.Result, silent.Result, last.Result}
	for i, sequence := range []int64{2, 2, 4} {
		closed.Steps[i].Sequence = sequence
	}
	fixture.RequireEqual(t, closed, fixture.RepeatBeginTurn(t, store, ref))
}

func commitIsIdempotent(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c := fixture.NewCommit(ref, turn, "step one", session.OutcomeOpen)
	for range 2 {
		require.EqualValues(t, 2, fixture.CommitStep(t, store, c))
	}
	last := fixture.NewCommit(ref, turn, "step two", session.OutcomeCompleted)
	last.Base, last.Result.Step = 2, 2
	for range 2 {
		require.EqualValues(t, 3, fixture.CommitStep(t, store, last))
	}
	// Both commits may be repeated, after the turn is closed and while the next turn is open.
	fixture.BeginTurn(t, store, ref, "t2", "more")
	require.EqualValues(t, 2, fixture.CommitStep(t, store, c))
	require.EqualValues(t, 3, fixture.CommitStep(t, store, last))
	require.Len(t, fixture.LoadHistory(t, store, ref), 4)
}

func commitRejectsTheSameStepWithAnotherResult(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "one", session.OutcomeOpen))
	_, err := store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, "two", session.OutcomeOpen))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	// A commit of the same messages with another outcome is a different commit.
	_, err = store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, "one", session.OutcomeCompleted))
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
	require.Equal(t, session.Busy, fixture.GetSession(t, store, ref).State)
}

func commitRejectsClosedTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	late := fixture.NewCommit(ref, turn, "one more", session.OutcomeOpen)
	late.Base, late.Result.Step = 2, 2
	_, err := store.CommitStep(t.Context(), late)
	fixture.RequireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
}

func commitRejectsWrongBase(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	for _, base := range []int64{2, 7} {
		c := fixture.NewCommit(ref, turn, "hi", session.OutcomeCompleted)
		c.Base = base
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.BaseMismatch, "last_sequence", "1")
	}
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

func commitRejectsUnknownTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	c := fixture.NewCommit(ref, session.Turn{ID: "t1", Epoch: 1, Sequence: 1}, "hi", session.OutcomeCompleted)
	_, err := store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	fixture.BeginTurn(t, store, ref, "t2", "hello")
	_, err = store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.NotFound, "turn_id", "t1")
}

func commitRejectsOtherEpochs(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	turn.Epoch++ // an epoch that was never granted is rejected like an old one
	fixture.RequireFenced(t, store, ref, turn)
}

func commitInputRequiredClosesTheTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "book it")
	question := fixture.NewCommit(ref, turn, "for when?", session.OutcomeInputRequired)
	question.Result.InputRequired = true
	fixture.CommitStep(t, store, question)
	s := fixture.GetSession(t, store, ref)
	require.Equal(t, session.InputRequired, s.State)
	require.Empty(t, s.OpenTurn)
	require.Equal(t, session.OutcomeInputRequired, fixture.RepeatBeginTurn(t, store, ref).Outcome)

	fixture.RunTurn(t, store, ref, "t2", "tomorrow", "done")
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
}

func commitFailedStepKeepsItsFailure(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c := memory.Commit{Ref: ref, TurnID: "t1", Epoch: turn.Epoch, Base: 1, Result: execution.Result{
		Step: 1, Agent: "research",
		Failure: failure.New(failure.ResourceAPI, "model.Generate", "the model does not answer").With("status", "503"),
	}}
	fixture.CommitStep(t, store, c)
	c.Result.Sequence = 1
	fixture.RequireEqual(t, []execution.Result{c.Result}, fixture.RepeatBeginTurn(t, store, ref).Steps)
}

func commitRejectsTooManyMessages(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c := fixture.NewCommit(ref, turn, "a", session.OutcomeCompleted)
	for range fixture.MaxMessages - 1 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a"))
	}
	_, err := store.CommitStep(t.Context(), c) // one message too many
	fixture.RequireMode(t, err, failure.SessionFull, "messages", "1", "max_messages", fmt.Sprint(fixture.MaxMessages))
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)

	c.Messages = c.Messages[1:]
	require.EqualValues(t, fixture.MaxMessages, fixture.CommitStep(t, store, c))
	_, err = store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t2", "more"))
	fixture.RequireMode(t, err, failure.SessionFull)
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
	require.Len(t, fixture.LoadHistory(t, store, ref), fixture.MaxMessages)
}

func commitRejectsTooManyBytes(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	_, err := store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, strings.Repeat("a", fixture.MaxBytes), session.OutcomeCompleted))
	fixture.RequireMode(t, err, failure.SessionFull, "max_bytes", fmt.Sprint(fixture.MaxBytes))

	big := strings.Repeat("a", fixture.MaxBytes/2)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, big, session.OutcomeCompleted))
	_, err = store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t2", big))
	fixture.RequireMode(t, err, failure.SessionFull)
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
	require.Less(t, fixture.GetSession(t, store, ref).Size.Bytes, int64(fixture.MaxBytes))
}

// commitOneConcurrentResultWins commits different results of one step at the same time. Exactly one commit
// succeeds.
func commitOneConcurrentResultWins(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	errs := make([]error, 16)
	var writers sync.WaitGroup
	for i := range errs {
		writers.Go(func() {
			_, errs[i] = store.CommitStep(t.Context(), fixture.NewCommit(ref, turn, fmt.Sprint(i), session.OutcomeCompleted))
		})
	}
	writers.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		fixture.RequireMode(t, err, failure.TurnNotOpen)
	}
	require.Equal(t, 1, won)
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
}

// Req: C-1
func commitAuthRequiredClosesTheTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read my calendar")
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "I need your leave", session.OutcomeAuthRequired))
	s := fixture.GetSession(t, store, ref)
	require.Equal(t, session.AuthRequired, s.State)
	require.Empty(t, s.OpenTurn)
	require.Equal(t, session.OutcomeAuthRequired, fixture.RepeatBeginTurn(t, store, ref).Outcome)

	fixture.RunTurn(t, store, ref, "t2", "you have it", "done")
	require.Equal(t, session.Ready, fixture.GetSession(t, store, ref).State)
}

// commitSuccessorRepeatsALostCommit takes the turn over after a commit whose reply was lost, and repeats that
// commit.
func commitSuccessorRepeatsALostCommit(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c := fixture.NewCommit(ref, turn, "one", session.OutcomeOpen)
	fixture.CommitStep(t, store, c)
	c.Epoch = fixture.TakeOver(t, store, ref, turn).Epoch
	require.EqualValues(t, 2, fixture.CommitStep(t, store, c))
	c.Epoch = turn.Epoch
	_, err := store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.Fenced)
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
}

// Req: LP-25
func commitKeepsToolRounds(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "look it up")
	c := fixture.NewCommit(ref, turn, "it is so", session.OutcomeCompleted)
	c.Messages = append(fixture.ToolRound(2), c.Messages...)
	require.EqualValues(t, 5, fixture.CommitStep(t, store, c))
	want := []conversation.Message{conversation.User("look it up")}
	for i, m := range append(want, c.Messages...) {
		m.Sequence, m.Turn = int64(i+1), 1
		want = append(want[:i], m)
	}
	fixture.RequireEqual(t, want, fixture.LoadHistory(t, store, ref))
	require.EqualValues(t, 5, fixture.CommitStep(t, store, c), "repeated")
}
