package sessions

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func scopeTests() fixture.Tests {
	return fixture.Tests{"Scope_SessionReadsOnlyItsOwnData": scopeSessionReadsOnlyItsOwnData}
}

// newSessionContaining returns a session of a user in which data of every kind contains the word.
func newSessionContaining(t *testing.T, store memory.Store, user, word string) session.Ref {
	t.Helper()
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "the word is "+word)
	ask.User = user
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.PutArtifact(t, store, memory.Lease{Ref: ref, TurnID: "t1", Epoch: begun.Turn.Epoch}, "note", word)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "yes, "+word, session.OutcomeCompleted))
	fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "mine", `"`+word+`"`))
	if user != "" {
		fixture.UpdateState(t, store, fixture.NewStateUpdate(ref, "user:mine", `"`+word+`"`))
	}
	return ref
}

// A session can read only its own data and the shared data of its own user. The test covers sessions of two users,
// sessions without a user, and two sessions of one user.
// Req: OC-11
func scopeSessionReadsOnlyItsOwnData(t *testing.T, store memory.Store) {
	alice, bob := fixture.UniqueName("alice"), fixture.UniqueName("bob")
	words := map[session.Ref]string{}
	for _, user := range []string{alice, alice, bob, ""} {
		word := fixture.UniqueName("word")
		words[newSessionContaining(t, store, user, word)] = word
	}
	users := map[session.Ref]string{}
	for ref := range words {
		users[ref] = fixture.GetSession(t, store, ref).User
	}
	for ref, word := range words {
		said := fixture.LoadHistory(t, store, ref)
		require.Len(t, said, 2)
		for _, m := range said {
			require.Contains(t, m.Text, word)
		}
		values := fixture.GetState(t, store, ref).Values
		require.JSONEq(t, `"`+word+`"`, string(values["mine"]), "session:x")
		for other, theirs := range words {
			if users[other] != users[ref] {
				require.NotContains(t, fmt.Sprintf("%s", values), theirs, "user:x")
			}
		}
		kept := fixture.ListArtifacts(t, store, ref)
		require.Len(t, kept, 1)
		require.Equal(t, word, fixture.ReadContent(t, store, ref, kept[0].Content, 0))
		for other, theirs := range words {
			if other != ref {
				_, err := store.ReadArtifact(t.Context(), ref, fixture.ContentOf(theirs), 0)
				fixture.RequireMode(t, err, failure.NotFound)
			}
		}
	}
	for ref, word := range words {
		for _, asker := range []string{alice, bob} {
			found := slices.ContainsFunc(fixture.SearchMemory(t, store, asker, word), func(h memory.Hit) bool { return strings.Contains(h.Message.Text, word) })
			require.Equal(t, users[ref] == asker, found, "user:x")
		}
		if users[ref] != "" {
			next := fixture.NewBegin(ref, "t2", "and now")
			next.User = fixture.UniqueName("mallory")
			_, err := store.BeginTurn(t.Context(), next)
			fixture.RequireMode(t, err, failure.NotFound)
		}
	}
}
