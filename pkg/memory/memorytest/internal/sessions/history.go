package sessions

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func historyTests() fixture.Tests {
	return fixture.Tests{
		"LoadHistory_ReturnsPages":          loadHistoryReturnsPages,
		"LoadHistory_RejectsUnknownSession": loadHistoryRejectsUnknownSession,
		"GetSession_RejectsUnknownSession":  getSessionRejectsUnknownSession,
		"Sessions_AreIsolated":              sessionsAreIsolated,
	}
}

func loadHistoryReturnsPages(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for i := range 5 {
		fixture.RunTurn(t, store, ref, fmt.Sprintf("t%d", i), fmt.Sprintf("question %d", i), fmt.Sprintf("answer %d", i))
	}
	all := fixture.LoadHistory(t, store, ref)
	require.Len(t, all, 10)
	for i, m := range all {
		require.EqualValues(t, i+1, m.Sequence)
		require.Equal(t, i/2+1, m.Turn)
	}
	var paged []conversation.Message
	for after := int64(0); ; after = paged[len(paged)-1].Sequence {
		page, err := store.LoadHistory(t.Context(), ref, after, 3)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		require.LessOrEqual(t, len(page), 3)
		paged = append(paged, page...)
	}
	fixture.RequireEqual(t, all, paged)
}

func loadHistoryRejectsUnknownSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.LoadHistory(t.Context(), ref, 0, 10)
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
}

func getSessionRejectsUnknownSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.GetSession(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
}

// sessionsAreIsolated uses the same turn id in two sessions. Neither session can read the data of the other.
// Req: RA-23
func sessionsAreIsolated(t *testing.T, store memory.Store) {
	one, two := fixture.NewRef(), fixture.NewRef()
	fixture.RunTurn(t, store, one, "t1", "I am one", "hello one")
	turn := fixture.BeginTurn(t, store, two, "t1", "I am two")
	require.Equal(t, 1, turn.Number)
	require.Equal(t, session.Busy, fixture.GetSession(t, store, two).State)
	require.Equal(t, session.Ready, fixture.GetSession(t, store, one).State)
	require.Len(t, fixture.LoadHistory(t, store, one), 2)
	require.Equal(t, "I am two", fixture.LoadHistory(t, store, two)[0].Text)
}
