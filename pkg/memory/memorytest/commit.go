package memorytest

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
	"github.com/troupe-dev/troupe/pkg/session"
)

func commitTests() tests {
	return tests{
		"Commit_ShowsMessagesAndKeepsResult":   commitShowsMessagesAndKeepsResult,
		"Commit_TwiceIsOnce":                   commitTwiceIsOnce,
		"Commit_RefusesAnotherResult":          commitRefusesAnotherResult,
		"Commit_RefusesClosedTurn":             commitRefusesClosedTurn,
		"Commit_RefusesWrongBase":              commitRefusesWrongBase,
		"Commit_RefusesUnknownTurn":            commitRefusesUnknownTurn,
		"Commit_RefusesOtherEpochs":            commitRefusesOtherEpochs,
		"Commit_InputRequiredClosesTheTurn":    commitInputRequiredClosesTheTurn,
		"Commit_AuthRequiredClosesTheTurn":     commitAuthRequiredClosesTheTurn,
		"Commit_SuccessorRepeatsWhatWasLost":   commitSuccessorRepeatsWhatWasLost,
		"Commit_KeepsToolRounds":               commitKeepsToolRounds,
		"Commit_StepThatFailedKeepsItsFailure": commitStepThatFailedKeepsItsFailure,
		"Commit_RefusesTooManyMessages":        commitRefusesTooManyMessages,
		"Commit_RefusesTooManyBytes":           commitRefusesTooManyBytes,
		"Commit_ConcurrentStepsOfOneTurn":      commitConcurrentStepsOfOneTurn,
	}
}

func commitShowsMessagesAndKeepsResult(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	sure := 0.75
	first := answering(ref, turn, "looking", session.OutcomeOpen)
	first.Result = execution.Result{
		Step: 1, Agent: "research", Text: "looking", NextAgent: "synthesis",
		Observations: []string{"Used tool: search"}, ToolsCalled: []string{"search", "search"},
		Iterations: 3, MaxIterations: true, Usage: execution.Usage{InputTokens: 10, OutputTokens: 20, ModelCalls: 3},
		Confidence: &sure,
	}
	require.EqualValues(t, 2, commit(t, store, first))
	require.Equal(t, session.Busy, get(t, store, ref).State)

	// A step may have no message, and a step more than one.
	silent := memory.Commit{Ref: ref, TurnID: "t1", Epoch: turn.Epoch, Base: 2, Result: execution.Result{Step: 2, Agent: "router"}}
	require.EqualValues(t, 2, commit(t, store, silent))
	last := answering(ref, turn, "done", session.OutcomeCompleted)
	last.Base, last.Result.Step = 2, 3
	last.Messages = append(last.Messages, conversation.Assistant("echo", "really"))
	require.EqualValues(t, 4, commit(t, store, last))

	requireSame(t, []conversation.Message{
		{Sequence: 1, Role: conversation.RoleUser, Text: "hello", Turn: 1},
		{Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Text: "looking", Turn: 1},
		{Sequence: 3, Role: conversation.RoleAssistant, Author: "echo", Text: "done", Turn: 1},
		{Sequence: 4, Role: conversation.RoleAssistant, Author: "echo", Text: "really", Turn: 1},
	}, history(t, store, ref))
	s := get(t, store, ref)
	requireSame(t, session.Session{
		ID: ref.Session, State: session.Ready, Turns: 1, Messages: 4, Sequence: 4, LastTrace: turn.Trace,
	}, s)

	closed := turn
	closed.Outcome, closed.Sequence = session.OutcomeCompleted, 4
	closed.Steps = []execution.Result{first.Result, silent.Result, last.Result}
	for i, sequence := range []int64{2, 2, 4} {
		closed.Steps[i].Sequence = sequence
	}
	requireSame(t, closed, known(t, store, ref))
}

func commitTwiceIsOnce(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	c := answering(ref, turn, "step one", session.OutcomeOpen)
	for range 2 {
		require.EqualValues(t, 2, commit(t, store, c))
	}
	last := answering(ref, turn, "step two", session.OutcomeCompleted)
	last.Base, last.Result.Step = 2, 2
	for range 2 {
		require.EqualValues(t, 3, commit(t, store, last))
	}
	// Both may be repeated when the turn is closed, and while the next one is open.
	begin(t, store, ref, "t2", "more")
	require.EqualValues(t, 2, commit(t, store, c))
	require.EqualValues(t, 3, commit(t, store, last))
	require.Len(t, history(t, store, ref), 4)
}

func commitRefusesAnotherResult(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	commit(t, store, answering(ref, turn, "one", session.OutcomeOpen))
	_, err := store.CommitStep(t.Context(), answering(ref, turn, "two", session.OutcomeOpen))
	requireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	// The same messages with an outcome are another commit too.
	_, err = store.CommitStep(t.Context(), answering(ref, turn, "one", session.OutcomeCompleted))
	requireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	require.Len(t, history(t, store, ref), 2)
	require.Equal(t, session.Busy, get(t, store, ref).State)
}

func commitRefusesClosedTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := converse(t, store, ref, "t1", "hello", "hi")
	late := answering(ref, turn, "one more", session.OutcomeOpen)
	late.Base, late.Result.Step = 2, 2
	_, err := store.CommitStep(t.Context(), late)
	requireMode(t, err, failure.TurnNotOpen, "turn_id", "t1")
	require.Len(t, history(t, store, ref), 2)
}

func commitRefusesWrongBase(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	for _, base := range []int64{2, 7} {
		c := answering(ref, turn, "hi", session.OutcomeCompleted)
		c.Base = base
		_, err := store.CommitStep(t.Context(), c)
		requireMode(t, err, failure.BaseMismatch, "last_sequence", "1")
	}
	require.Len(t, history(t, store, ref), 1)
}

func commitRefusesUnknownTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	c := answering(ref, session.Turn{ID: "t1", Epoch: 1, Sequence: 1}, "hi", session.OutcomeCompleted)
	_, err := store.CommitStep(t.Context(), c)
	requireMode(t, err, failure.NotFound, "session_id", ref.Session)
	begin(t, store, ref, "t2", "hello")
	_, err = store.CommitStep(t.Context(), c)
	requireMode(t, err, failure.NotFound, "turn_id", "t1")
}

func commitRefusesOtherEpochs(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	turn.Epoch++ // one that was never granted is refused like one that is over
	requireFenced(t, store, ref, turn)
}

func commitInputRequiredClosesTheTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "book it")
	question := answering(ref, turn, "for when?", session.OutcomeInputRequired)
	question.Result.InputRequired = true
	commit(t, store, question)
	s := get(t, store, ref)
	require.Equal(t, session.InputRequired, s.State)
	require.Empty(t, s.OpenTurn)
	require.Equal(t, session.OutcomeInputRequired, known(t, store, ref).Outcome)

	converse(t, store, ref, "t2", "tomorrow", "done")
	require.Equal(t, session.Ready, get(t, store, ref).State)
}

func commitStepThatFailedKeepsItsFailure(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	c := memory.Commit{Ref: ref, TurnID: "t1", Epoch: turn.Epoch, Base: 1, Result: execution.Result{
		Step: 1, Agent: "research",
		Failure: failure.New(failure.ResourceAPI, "model.Generate", "the model does not answer").With("status", "503"),
	}}
	commit(t, store, c)
	c.Result.Sequence = 1
	requireSame(t, []execution.Result{c.Result}, known(t, store, ref).Steps)
}

func commitRefusesTooManyMessages(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	c := answering(ref, turn, "a", session.OutcomeCompleted)
	for range MaxMessages - 1 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a"))
	}
	_, err := store.CommitStep(t.Context(), c) // one too many
	requireMode(t, err, failure.SessionFull, "messages", "1", "max_messages", fmt.Sprint(MaxMessages))
	require.Len(t, history(t, store, ref), 1)

	c.Messages = c.Messages[1:]
	require.EqualValues(t, MaxMessages, commit(t, store, c))
	_, err = store.BeginTurn(t.Context(), asking(ref, "t2", "more"))
	requireMode(t, err, failure.SessionFull)
	require.Equal(t, session.Ready, get(t, store, ref).State)
	require.Len(t, history(t, store, ref), MaxMessages)
}

func commitRefusesTooManyBytes(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	_, err := store.CommitStep(t.Context(), answering(ref, turn, strings.Repeat("a", MaxBytes), session.OutcomeCompleted))
	requireMode(t, err, failure.SessionFull, "max_bytes", fmt.Sprint(MaxBytes))

	big := strings.Repeat("a", MaxBytes/2)
	commit(t, store, answering(ref, turn, big, session.OutcomeCompleted))
	_, err = store.BeginTurn(t.Context(), asking(ref, "t2", big))
	requireMode(t, err, failure.SessionFull)
	require.Len(t, history(t, store, ref), 2)
	require.Less(t, get(t, store, ref).Bytes, int64(MaxBytes))
}

// commitConcurrentStepsOfOneTurn races different results for the same step: one wins.
func commitConcurrentStepsOfOneTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	errs := make([]error, 16)
	var writers sync.WaitGroup
	for i := range errs {
		writers.Go(func() {
			_, errs[i] = store.CommitStep(t.Context(), answering(ref, turn, fmt.Sprint(i), session.OutcomeCompleted))
		})
	}
	writers.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		requireMode(t, err, failure.TurnNotOpen)
	}
	require.Equal(t, 1, won)
	require.Len(t, history(t, store, ref), 2)
}

// Req: C-1
func commitAuthRequiredClosesTheTurn(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "read my calendar")
	commit(t, store, answering(ref, turn, "I need your leave", session.OutcomeAuthRequired))
	s := get(t, store, ref)
	require.Equal(t, session.AuthRequired, s.State)
	require.Empty(t, s.OpenTurn)
	require.Equal(t, session.OutcomeAuthRequired, known(t, store, ref).Outcome)

	converse(t, store, ref, "t2", "you have it", "done")
	require.Equal(t, session.Ready, get(t, store, ref).State)
}

// commitSuccessorRepeatsWhatWasLost is a takeover between a commit and its reply.
func commitSuccessorRepeatsWhatWasLost(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "hello")
	c := answering(ref, turn, "one", session.OutcomeOpen)
	commit(t, store, c)
	c.Epoch = takeOver(t, store, ref, turn).Epoch
	require.EqualValues(t, 2, commit(t, store, c))
	c.Epoch = turn.Epoch
	_, err := store.CommitStep(t.Context(), c)
	requireMode(t, err, failure.Fenced)
	require.Len(t, history(t, store, ref), 2)
}

// Req: LP-25
func commitKeepsToolRounds(t *testing.T, store memory.Store) {
	ref := fresh()
	turn := begin(t, store, ref, "t1", "look it up")
	c := answering(ref, turn, "it is so", session.OutcomeCompleted)
	c.Messages = append(roundOf(2), c.Messages...)
	require.EqualValues(t, 5, commit(t, store, c))
	want := []conversation.Message{conversation.User("look it up")}
	for i, m := range append(want, c.Messages...) {
		m.Sequence, m.Turn = int64(i+1), 1
		want = append(want[:i], m)
	}
	requireSame(t, want, history(t, store, ref))
	require.EqualValues(t, 5, commit(t, store, c), "repeated")
}
