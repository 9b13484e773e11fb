package continuation

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func copyTests() fixture.Tests {
	return fixture.Tests{
		"Copy_BeginsASessionAsACopy":    copyBeginsASessionAsACopy,
		"Copy_RepeatReturnsTheSameTurn": copyRepeatReturnsTheSameTurn,
		"Copy_RejectsAnExistingSession": copyRejectsAnExistingSession,
		"Copy_MayBeginWithASummary":     copyMayBeginWithASummary,
		"Copy_IncludesFiles":            copyIncludesFiles,
		"Copy_IncludesRounds":           copyIncludesRounds,
		"Copy_RespectsTheLimits":        copyRespectsTheLimits,
	}
}

func copyBeginsASessionAsACopy(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewCopy(ref, "read on")
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	window := []conversation.Message{
		{Sequence: 1, Role: conversation.RoleUser, Text: "hello"},
		{Sequence: 2, Role: conversation.RoleAssistant, Author: "echo", Text: "hi"},
		{Sequence: 3, Role: conversation.RoleUser, Text: "read on", Turn: 1},
	}
	fixture.RequireEqual(t, memory.BeginResult{
		Status: memory.StatusBegun, Messages: 2,
		Turn: session.Turn{
			ID: "t1", Trace: ask.TraceID, Number: 1, Epoch: begun.Turn.Epoch, Attempt: 1, Sequence: 4, Steps: markInherited(ask.Predecessor.Inherited[0]),
		},
		History: window,
	}, begun)
	said := conversation.Message{Sequence: 4, Role: conversation.RoleAssistant, Author: "echo", Text: "first", Turn: 1}
	fixture.RequireEqual(t, append(window, said), fixture.LoadHistory(t, store, ref))
	fixture.RequireEqual(t, session.Session{
		ID: ref.Session, State: session.Busy, Turns: 1, Size: session.Size{Messages: 4}, LastSequence: 4, OpenTurn: "t1", LastTrace: ask.TraceID,
	}, fixture.GetSession(t, store, ref))
	seen := fixture.GetState(t, store, ref)
	require.JSONEq(t, `"pages"`, string(seen.Values["topic"]))
	require.EqualValues(t, 1, seen.Revisions[memory.ScopeSession])

	// The copied session can then be used like any other session.
	c := fixture.NewCommit(ref, begun.Turn, "second", session.OutcomeCompleted)
	c.Result.Step = 2
	c.State = map[string]json.RawMessage{"topic": json.RawMessage(`"books"`)}
	require.EqualValues(t, 5, fixture.CommitStep(t, store, c))
	fixture.RunTurn(t, store, ref, "t2", "and now?", "well")
	require.Len(t, fixture.LoadHistory(t, store, ref), 7)
}

func copyRepeatReturnsTheSameTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewCopy(ref, "read on")
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.RequireEqual(t, first, again)
	fixture.ReleaseTurn(t, store, ref, first.Turn)
	next, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "read on"))
	require.NoError(t, err)
	want := first
	want.Turn.Attempt, want.Turn.Epoch = 2, next.Turn.Epoch
	fixture.RequireEqual(t, want, next)
}

func copyRejectsAnExistingSession(t *testing.T, store memory.Store) {
	used, made := fixture.NewRef(), fixture.NewRef()
	fixture.RunTurn(t, store, used, "t0", "hello", "hi")
	_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: made, Create: true})
	require.NoError(t, err)
	for _, ref := range []session.Ref{used, made} {
		before := fixture.ReadSession(t, store, ref)
		_, err := store.BeginTurn(t.Context(), fixture.NewCopy(ref, "read on"))
		fixture.RequireMode(t, err, failure.KeyReused, "session_id", ref.Session)
		fixture.RequireEqual(t, before, fixture.ReadSession(t, store, ref))
	}
}

func copyMayBeginWithASummary(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewCopy(ref, "read on")
	ask.Predecessor.Copy.History[0] = conversation.Message{Role: conversation.RoleSummary, Text: "they talked"}
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Len(t, begun.History, 3)
	require.Equal(t, conversation.RoleSummary, begun.History[0].Role)
	require.Equal(t, "they talked", begun.History[0].Text)
	require.EqualValues(t, 3, fixture.GetSession(t, store, ref).Size.Messages)
	require.EqualValues(t, 1, fixture.GetSession(t, store, ref).Size.Summarized)
	all := fixture.LoadHistory(t, store, ref)
	require.Len(t, all, 4)
	require.Equal(t, "they talked", all[0].Text)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.RequireEqual(t, begun, again)
}

func copyIncludesFiles(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewCopy(ref, "read this")
	ask.Message.Attachments = []conversation.Attachment{{Name: "a.txt", MediaType: "text/plain", Data: []byte("pages")}}
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, 1, begun.History[2].Attachments[0].Version)
	require.Len(t, fixture.ListArtifacts(t, store, ref), 1)
}

// A fork remembers what its agents did before: their rounds are part of the copy.
// Req: OC-27, LP-45
func copyIncludesRounds(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewCopy(ref, "read on")
	round := func(after int64, turn, step int, id string) conversation.Rounds {
		return conversation.Rounds{Turn: turn, Step: step, After: after, Messages: []conversation.Message{
			{Role: conversation.RoleAssistant, Author: "echo", ToolCalls: []conversation.ToolCall{{ID: id, Name: "read", Arguments: "{}"}}},
			{Role: conversation.RoleTool, ToolCallID: id, Text: "page " + id, Untrusted: "tool read"},
		}}
	}
	copied := map[string][]conversation.Rounds{
		"echo":  {round(1, 0, 1, "a"), round(1, 0, 2, "b"), round(3, 1, 1, "c")},
		"other": {round(2, 0, 3, "d")},
	}
	ask.Predecessor.Copy.Rounds = copied
	for range 2 { // a repeated call copies nothing again
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"echo", "other"}, begun.Agents)
	}
	for agent, want := range copied {
		got, err := store.LoadRounds(t.Context(), ref, agent, 0, nil)
		require.NoError(t, err)
		fixture.RequireEqual(t, want, got)
	}

	tooLate := fixture.NewCopy(fixture.NewRef(), "read on")
	tooLate.Predecessor.Copy.Rounds = map[string][]conversation.Rounds{"echo": {round(5, 0, 1, "a")}}
	_, err := store.BeginTurn(t.Context(), tooLate)
	fixture.RequireMode(t, err, failure.UserInvalidInput)
	require.ErrorContains(t, err, "copy.rounds")
}

func copyRespectsTheLimits(t *testing.T, store memory.Store) {
	for field, change := range map[string]func(b *memory.Begin){
		"copy.state": func(b *memory.Begin) { b.Predecessor.Copy.State["user:name"] = json.RawMessage(`"bob"`) },
		"copy":       func(b *memory.Begin) { b.Message = conversation.Message{} },
		"too many": func(b *memory.Begin) {
			b.Predecessor.Copy.History = slices.Repeat([]conversation.Message{conversation.User("more")}, memory.MaxWindow)
		},
	} {
		ref := fixture.NewRef()
		b := fixture.NewCopy(ref, "read on")
		change(&b)
		_, err := store.BeginTurn(t.Context(), b)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
		require.ErrorContains(t, err, field)
		_, err = store.GetSession(t.Context(), ref)
		fixture.RequireMode(t, err, failure.NotFound)
	}
	full := fixture.NewCopy(fixture.NewRef(), "read on")
	for range fixture.MaxMessages {
		full.Predecessor.Copy.History = append(full.Predecessor.Copy.History, conversation.User("more"))
	}
	_, err := store.BeginTurn(t.Context(), full)
	fixture.RequireMode(t, err, failure.SessionFull)
}
