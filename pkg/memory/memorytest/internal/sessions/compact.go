package sessions

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func compactTests() fixture.Tests {
	return fixture.Tests{
		"Compact_ReplacesTheOldestMessages": compactReplacesTheOldestMessages,
		"Compact_SupportsAllStrategies":     compactSupportsAllStrategies,
		"Compact_ExtendsTheEarlierSummary":  compactExtendsTheEarlierSummary,
		"Compact_ShortSessionIsUnchanged":   compactShortSessionIsUnchanged,
		"Compact_KeepsToolRoundsWhole":      compactKeepsToolRoundsWhole,
		"Compact_MakesRoom":                 compactMakesRoom,
		"Compact_RejectsBusySession":        compactRejectsBusySession,
		"Compact_RejectsUnknownSession":     compactRejectsUnknownSession,
		"Compact_TruncatesTheSummary":       compactTruncatesTheSummary,
		"Clear_EmptiesTheSession":           clearEmptiesTheSession,
		"Clear_RepeatsStillGetTheirAnswers": clearRepeatsStillGetTheirAnswers,
		"Clear_RejectsBusySession":          clearRejectsBusySession,
		"Clear_RejectsUnknownSession":       clearRejectsUnknownSession,
	}
}

// Req: LP-26
func compactReplacesTheOldestMessages(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, 5)
	before := fixture.GetSession(t, store, ref)
	done := fixture.CompactSession(t, store, memory.Compact{Ref: ref, Strategy: conversation.Summarize, Keep: 4, Summary: "They talked."})
	require.Equal(t, conversation.Compaction{
		First: 1, Last: 6, Messages: 6, Summary: "They talked.", TokensSaved: 3*(3+2) - 3,
	}, done)
	after := fixture.GetSession(t, store, ref)
	require.Less(t, after.Size.Bytes, before.Size.Bytes)
	require.EqualValues(t, 10, after.LastSequence)

	// The next message has the sequence after the last message that remains. Pages of the history include the
	// summary.
	fixture.RunTurn(t, store, ref, "next", "and now?", "more")
	var sequences []int64
	for at := int64(0); ; {
		page, err := store.LoadHistory(t.Context(), ref, at, 2)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			sequences = append(sequences, m.Sequence)
		}
		at = page[len(page)-1].Sequence
	}
	require.Equal(t, []int64{6, 7, 8, 9, 10, 11, 12}, sequences)
}

// Req: LP-26
func compactSupportsAllStrategies(t *testing.T, store memory.Store) {
	for strategy, told := range map[conversation.Strategy][]string{
		conversation.SlidingWindow: nil,
		conversation.Summarize:     {"question 0", "answer 0", "question 10"},
		conversation.Hierarchical:  {"1 to 10: ", "11 to 20: ", "21 to 22: ", "question 0"},
		"":                         {"question 0", "answer 10"}, // the same as Summarize
	} {
		ref := fixture.NewRef()
		fixture.RunTurns(t, store, ref, 14)
		done := fixture.CompactSession(t, store, memory.Compact{Ref: ref, Strategy: strategy, Keep: 6})
		require.EqualValues(t, 22, done.Messages)
		require.Contains(t, done.Summary, "22", "it says how many went")
		for _, text := range told {
			require.Contains(t, done.Summary, text, "strategy %q", strategy)
		}
		if told == nil {
			require.NotContains(t, done.Summary, "question")
		}
	}
}

func compactExtendsTheEarlierSummary(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, 4)
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 2, Summary: "They spoke of the sea."})
	fixture.RunTurns(t, store, ref, 3)
	done := fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 2})
	require.EqualValues(t, 7, done.First)
	require.EqualValues(t, 12, done.Last)
	require.Contains(t, done.Summary, "They spoke of the sea.", "the summary of before goes on")
	require.Contains(t, done.Summary, "question 5")
	require.Zero(t, fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 2}))
}

func compactShortSessionIsUnchanged(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, 2)
	require.Zero(t, fixture.CompactSession(t, store, memory.Compact{Ref: ref, Summary: "Nothing."}), "50 are kept when nothing is said")
	require.Zero(t, fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 4}))
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Pause})
	require.EqualValues(t, 1, fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 3}).Messages)
	require.Equal(t, session.Paused, fixture.GetSession(t, store, ref).State)
}

// Req: LP-26
func compactKeepsToolRoundsWhole(t *testing.T, store memory.Store) {
	for keep, left := range map[int]int64{1: 1, 2: 4, 3: 4, 4: 4, 5: 5} {
		ref := fixture.NewRef()
		turn := fixture.BeginTurn(t, store, ref, "t1", "look it up")
		c := fixture.NewCommit(ref, turn, "it is so", session.OutcomeCompleted)
		c.Messages = append(fixture.ToolRound(2), c.Messages...)
		fixture.CommitStep(t, store, c)
		fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: keep})
		require.Equal(t, left, fixture.GetSession(t, store, ref).Size.Messages, "of 5 with a round of 3, keep %d", keep)
	}
}

// compactMakesRoom compacts a full session, as the error of a full session recommends. Afterwards the session
// accepts messages again.
func compactMakesRoom(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, fixture.MaxMessages/2)
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "more", "more"))
	fixture.RequireMode(t, err, failure.SessionFull)
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 10})
	fixture.RunTurn(t, store, ref, "more", "more", "yes")
	s := fixture.GetSession(t, store, ref)
	require.EqualValues(t, 12, s.Size.Messages)
	require.EqualValues(t, fixture.MaxMessages+2, s.LastSequence)
}

func compactTruncatesTheSummary(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, 2)
	done := fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 1, Summary: strings.Repeat("ä", memory.MaxSummaryBytes)})
	require.Equal(t, strings.Repeat("ä", memory.MaxSummaryBytes/2), done.Summary)
}

func compactRejectsBusySession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurns(t, store, ref, 2)
	turn := fixture.BeginTurn(t, store, ref, "open", "more")
	for range 2 {
		_, err := store.CompactSession(t.Context(), memory.Compact{Ref: ref, Keep: 1})
		fixture.RequireMode(t, err, failure.SessionBusy, "turn_id", "open", "trace_id", turn.Trace)
		fixture.ReleaseTurn(t, store, ref, turn) // a turn without a valid lease is also open
	}
	require.Len(t, fixture.LoadHistory(t, store, ref), 5)
}

func compactRejectsUnknownSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.CompactSession(t.Context(), memory.Compact{Ref: ref})
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
}

// Req: LP-11
func clearEmptiesTheSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	user := fixture.UniqueName("alice")
	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	c := fixture.ContentOf("a picture")
	fixture.PutArtifact(t, store, fixture.LeaseOf(ref, begun.Turn), "picture", "a picture")
	finish := fixture.NewCommit(ref, begun.Turn, "hi", session.OutcomeCompleted)
	finish.State = fixture.Delta("mood", `"good"`, "user:name", `"Alice"`)
	fixture.CommitStep(t, store, finish)
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 1})
	before := fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Pause, Metadata: map[string]string{"title": "Hello"}})

	for range 2 {
		require.NoError(t, store.ClearSession(t.Context(), ref))
		want := before
		want.Size.Messages, want.Size.Bytes, want.Size.Summarized, want.Size.ArtifactBytes = 0, 0, 0, 0
		s := fixture.GetSession(t, store, ref)
		fixture.RequireEqual(t, want, s)
		require.Zero(t, s.Size.Bytes)
		require.Empty(t, fixture.LoadHistory(t, store, ref))
		require.Empty(t, fixture.ListArtifacts(t, store, ref))
		left := fixture.GetState(t, store, ref).Values
		require.NotContains(t, left, "mood")
		require.Contains(t, left, "user:name", "it is not the session's")
		_, err = store.ReadArtifact(t.Context(), ref, c, 0)
		fixture.RequireMode(t, err, failure.NotFound)
	}

	ask = fixture.NewBegin(ref, "t2", "hello again")
	ask.User = user
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Greater(t, again.Turn.Epoch, begun.Turn.Epoch)
	require.Equal(t, 2, again.Turn.Number)
	require.Len(t, again.History, 1)
	require.EqualValues(t, 3, again.History[0].Sequence)
	require.Equal(t, 1, fixture.PutArtifact(t, store, fixture.LeaseOf(ref, again.Turn), "picture", "another").Version)
}

func clearRepeatsStillGetTheirAnswers(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
	u := fixture.NewStateUpdate(ref, "mood", `"good"`)
	revision := fixture.UpdateState(t, store, u)
	require.NoError(t, store.ClearSession(t.Context(), ref))
	require.Equal(t, session.OutcomeCompleted, fixture.RepeatBeginTurn(t, store, ref).Outcome)
	require.Equal(t, revision, fixture.UpdateState(t, store, u))
	require.NotContains(t, fixture.GetState(t, store, ref).Values, "mood")
	require.Equal(t, revision+1, fixture.GetState(t, store, ref).Revisions[memory.ScopeSession])

	// An update is rejected if its revision is from before the clear.
	stale := fixture.NewStateUpdate(ref, "mood", `"bad"`)
	stale.IfRevision = &revision
	_, err := store.UpdateState(t.Context(), stale)
	fixture.RequireMode(t, err, failure.RevisionMismatch)
}

func clearRejectsBusySession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	for range 2 {
		fixture.RequireMode(t, store.ClearSession(t.Context(), ref), failure.SessionBusy, "turn_id", "t1", "trace_id", turn.Trace)
		fixture.ReleaseTurn(t, store, ref, turn)
	}
	require.Len(t, fixture.LoadHistory(t, store, ref), 1)
}

func clearRejectsUnknownSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RequireMode(t, store.ClearSession(t.Context(), ref), failure.NotFound, "session_id", ref.Session)
}
