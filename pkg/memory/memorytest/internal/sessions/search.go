package sessions

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func searchTests() fixture.Tests {
	return fixture.Tests{
		"Search_ReturnsBestHitsFirst":             searchReturnsBestHitsFirst,
		"Search_ReturnsLatestFirstAmongEqualHits": searchReturnsLatestFirstAmongEqualHits,
		"Search_FindsOnlySessionsOfTheUser":       searchFindsOnlySessionsOfTheUser,
		"Search_RespectsTheLimit":                 searchRespectsTheLimit,
		"Search_WithoutWordsFindsNothing":         searchWithoutWordsFindsNothing,
		"Search_IgnoresRemovedMessages":           searchIgnoresRemovedMessages,
		"Search_ReadsAllSessions":                 searchReadsAllSessions,
	}
}

// newSessionWithTexts creates a session of the user and runs one turn for each text.
func newSessionWithTexts(t *testing.T, store memory.Store, user string, texts ...string) session.Ref {
	t.Helper()
	ref := fixture.NewRef()
	for i, text := range texts {
		ask := fixture.NewBegin(ref, fmt.Sprintf("t%d", i), text)
		ask.User = user
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "yes", session.OutcomeCompleted))
	}
	return ref
}

func searchReturnsBestHitsFirst(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	one := newSessionWithTexts(t, store, user, "The SEA is blue.", "nothing of it", "seaside")
	two := newSessionWithTexts(t, store, user, "blue whales in the blue sea", "We met at the sea, in a blue-white tent.")
	hits := fixture.SearchMemory(t, store, user, "Blue sea, tent? BLUE")
	require.Len(t, hits, 3)
	require.Equal(t, two.Session, hits[0].Session)
	require.InDelta(t, 1, hits[0].Score, 1e-9)
	fixture.RequireEqual(t, fixture.LoadHistory(t, store, two)[2], hits[0].Message)
	require.ElementsMatch(t, []string{one.Session, two.Session}, []string{hits[1].Session, hits[2].Session})
	for _, h := range hits[1:] {
		require.InDelta(t, 2.0/3, h.Score, 1e-9)
		require.EqualValues(t, 1, h.Message.Sequence)
	}
}

func searchReturnsLatestFirstAmongEqualHits(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	newSessionWithTexts(t, store, user, "sea", "lake", "sea and sand", "sea")
	var found []int64
	for _, h := range fixture.SearchMemory(t, store, user, "sea") {
		found = append(found, h.Message.Sequence)
	}
	require.Equal(t, []int64{7, 5, 1}, found)
}

func searchFindsOnlySessionsOfTheUser(t *testing.T, store memory.Store) {
	alice, bob := fixture.UniqueName("alice"), fixture.UniqueName("bob")
	newSessionWithTexts(t, store, alice, "the sea")
	newSessionWithTexts(t, store, bob, "the sea", "the sea again")
	require.Len(t, fixture.SearchMemory(t, store, alice, "sea"), 1)
	require.Len(t, fixture.SearchMemory(t, store, bob, "sea"), 2)
	require.Empty(t, fixture.SearchMemory(t, store, fixture.UniqueName("nobody"), "sea"))
}

func searchRespectsTheLimit(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	newSessionWithTexts(t, store, user, "sea", "sea of love", "love", "sea")
	hits, err := store.SearchMemory(t.Context(), memory.Search{Tenant: fixture.Tenant, User: user, Query: "sea love", Limit: 2})
	require.NoError(t, err)
	require.Len(t, hits, 2)
	require.Equal(t, "sea of love", hits[0].Message.Text)
	require.EqualValues(t, 7, hits[1].Message.Sequence)
}

func searchWithoutWordsFindsNothing(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	newSessionWithTexts(t, store, user, "what? - nothing!")
	require.Empty(t, fixture.SearchMemory(t, store, user, "? - !"))
	require.Empty(t, fixture.SearchMemory(t, store, user, "whatever"))
}

func searchIgnoresRemovedMessages(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	ref := newSessionWithTexts(t, store, user, "sea", "lake", "sea")
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 3, Summary: "of the sea"})
	hits := fixture.SearchMemory(t, store, user, "sea")
	require.Len(t, hits, 1)
	require.EqualValues(t, 5, hits[0].Message.Sequence)
	require.NoError(t, store.ClearSession(t.Context(), ref))
	require.Empty(t, fixture.SearchMemory(t, store, user, "sea"))
}

func searchReadsAllSessions(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	found := map[string]bool{}
	for range 5 {
		found[newSessionWithTexts(t, store, user, strings.Repeat("sand ", 500)+"sea", "lake").Session] = true
	}
	for _, h := range fixture.SearchMemory(t, store, user, "sea") {
		delete(found, h.Session)
	}
	require.Empty(t, found)
}
