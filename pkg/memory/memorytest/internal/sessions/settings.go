package sessions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func settingsTests() fixture.Tests {
	return fixture.Tests{
		"Settings_StandOnTheSession":            settingsStandOnTheSession,
		"Settings_AreChecked":                   settingsAreChecked,
		"Settings_CountMessagesBeforeATurn":     settingsCountMessagesBeforeATurn,
		"Settings_UnsavedMessagesAreNoHistory":  settingsUnsavedMessagesAreNoHistory,
		"Settings_AutoSaveSavesWhatIsUnsaved":   settingsAutoSaveSavesWhatIsUnsaved,
		"Settings_ClearAndCompactLeaveNothing":  settingsClearAndCompactLeaveNothingUnsaved,
		"Compact_RemovesNothingAfterItsSummary": compactRemovesNothingAfterItsSummary,
	}
}

// configure replaces the settings of a session, which it makes if there is none.
func configure(t *testing.T, store memory.Store, ref session.Ref, s session.Settings) session.Session {
	t.Helper()
	return fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Settings: &s, Create: true})
}

// Req: LP-2
func settingsStandOnTheSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	want := session.Settings{MaxMessages: 4, NoAutoSave: true, AutoCompact: true, Strategy: conversation.Hierarchical, SummaryByModel: true}
	for range 2 {
		made := configure(t, store, ref, want)
		require.Equal(t, want, made.Settings)
		require.Equal(t, session.Created, made.State)
		require.EqualValues(t, 1, made.Revision, "the same settings change nothing")
	}
	begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Equal(t, want, begun.Settings)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "hi", session.OutcomeCompleted))
	kept := fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: map[string]string{"a": "b"}})
	require.Equal(t, want, kept.Settings, "an update without settings keeps them")
	require.Equal(t, want, fixture.GetSession(t, store, ref).Settings)

	_, err = store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Settings: &session.Settings{}, IfRevision: 1})
	fixture.RequireMode(t, err, failure.RevisionMismatch)
	cleared := configure(t, store, ref, session.Settings{})
	require.Zero(t, cleared.Settings)
	require.EqualValues(t, 3, cleared.Revision)
	require.Zero(t, configure(t, store, fixture.NewRef(), session.Settings{}).Revision, "they are the default")
}

func settingsAreChecked(t *testing.T, store memory.Store) {
	for field, wrong := range map[string]session.Settings{
		"max_messages":     {MaxMessages: 1},
		"auto_compact":     {Strategy: conversation.Summarize},
		"summary_by_model": {AutoCompact: true, Strategy: conversation.SlidingWindow, SummaryByModel: true},
	} {
		ref := fixture.NewRef()
		_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Settings: &wrong, Create: true})
		fixture.RequireMode(t, err, failure.UserInvalidInput, "fields", field)
		_, err = store.GetSession(t.Context(), ref)
		fixture.RequireMode(t, err, failure.NotFound)
	}
}

// A turn knows how many messages came before it, also if it was taken over or continues after a compaction.
// Req: LP-21
func settingsCountMessagesBeforeATurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, 3)
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 2, Summary: "They talked."})
	begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "next", "more"))
	require.NoError(t, err)
	require.EqualValues(t, 2, begun.Messages)
	require.EqualValues(t, 4, begun.Removed)
	require.EqualValues(t, 3, begun.Turn.Sequence-begun.Removed)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "step one", session.OutcomeOpen))

	fixture.ReleaseTurn(t, store, ref, begun.Turn)
	taken, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "next", "more"))
	require.NoError(t, err)
	require.Equal(t, 2, taken.Turn.Attempt)
	require.EqualValues(t, 2, taken.Messages)
	require.EqualValues(t, 4, taken.Removed)
	require.EqualValues(t, 4, taken.Turn.Sequence-taken.Removed)
}

// Req: LP-12, LP-23, C-19
func settingsUnsavedMessagesAreNoHistory(t *testing.T, store memory.Store) {
	for _, verb := range []session.Verb{session.Save, session.Pause, session.Close} {
		ref, user := fixture.NewRef(), fixture.UniqueName("alice")
		fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Settings: &session.Settings{NoAutoSave: true}, Create: true, User: user})
		turn := func(id, question, answer string) memory.BeginResult {
			b := fixture.NewBegin(ref, id, question)
			b.User = user
			begun, err := store.BeginTurn(t.Context(), b)
			require.NoError(t, err)
			fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, answer, session.OutcomeCompleted))
			return begun
		}
		turn("t1", "one zebra", "first")
		require.Empty(t, fixture.LoadHistory(t, store, ref))
		require.Empty(t, fixture.SearchMemory(t, store, user, "zebra"))
		require.EqualValues(t, 2, fixture.GetSession(t, store, ref).Size.Unsaved)
		require.Len(t, turn("t2", "two", "second").History, 3, "a turn sees what is not saved")
		require.Empty(t, fixture.LoadHistory(t, store, ref))

		require.Zero(t, fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: verb}).Size.Unsaved)
		require.Len(t, fixture.LoadHistory(t, store, ref), 4)
		require.Len(t, fixture.SearchMemory(t, store, user, "zebra"), 1)
		fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Resume})
		turn("t3", "three", "third")
		require.Len(t, fixture.LoadHistory(t, store, ref), 4)
		require.EqualValues(t, 2, fixture.GetSession(t, store, ref).Size.Unsaved)
	}
}

func settingsAutoSaveSavesWhatIsUnsaved(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t1", "one", "first")
	configure(t, store, ref, session.Settings{NoAutoSave: true})
	fixture.RunTurn(t, store, ref, "t2", "two", "second")
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
	require.EqualValues(t, 2, configure(t, store, ref, session.Settings{NoAutoSave: true, MaxMessages: 9}).Size.Unsaved)
	require.Zero(t, configure(t, store, ref, session.Settings{}).Size.Unsaved)
	require.Len(t, fixture.LoadHistory(t, store, ref), 4)
}

func settingsClearAndCompactLeaveNothingUnsaved(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	configure(t, store, ref, session.Settings{NoAutoSave: true})
	fixture.RunTurns(t, store, ref, 2)
	_, err := store.CompactSession(t.Context(), memory.Compact{Ref: ref, Keep: 1})
	require.NoError(t, err)
	require.Zero(t, fixture.GetSession(t, store, ref).Size.Unsaved)
	require.Len(t, fixture.LoadHistory(t, store, ref), 2)
	fixture.RunTurn(t, store, ref, "next", "more", "yes")
	require.NoError(t, store.ClearSession(t.Context(), ref))
	require.Zero(t, fixture.GetSession(t, store, ref).Size.Unsaved)
}

// A model writes a summary while the session continues. The messages that it has not read stay.
// Req: LP-26
func compactRemovesNothingAfterItsSummary(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, 4)
	done := fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 2, UpTo: 3, Summary: "They talked."})
	require.EqualValues(t, 3, done.Last)
	require.Len(t, fixture.LoadHistory(t, store, ref), 6)
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 4, UpTo: 7})
	require.EqualValues(t, 4, fixture.GetSession(t, store, ref).Size.Messages, "the larger number stays")
}
