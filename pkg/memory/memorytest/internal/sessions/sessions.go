// Package sessions tests how sessions are listed, updated, read, searched and compacted, and that no session can
// read the data of another.
package sessions

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Tests returns the tests of this package by name.
func Tests() fixture.Tests {
	return fixture.Merge(sessionTests(), historyTests(), compactTests(), searchTests(), scopeTests(), untrustedTests(), settingsTests())
}

func sessionTests() fixture.Tests {
	return fixture.Tests{
		"Update_CreatesASession":               updateCreatesASession,
		"Update_VerbsFollowTheStateMachine":    updateVerbsFollowTheStateMachine,
		"Update_BusySessionIsNotPaused":        updateBusySessionIsNotPaused,
		"Update_ClosedSessionTakesNoTurn":      updateClosedSessionTakesNoTurn,
		"Update_PausedSessionIsResumedByATurn": updatePausedSessionIsResumedByATurn,
		"Update_MetadataIsMerged":              updateMetadataIsMerged,
		"Update_RevisionIsCompared":            updateRevisionIsCompared,
		"Update_RejectsTooManyLabels":          updateRejectsTooManyLabels,
		"Update_RejectsTooLongLabels":          updateRejectsTooLongLabels,
		"Update_RejectsUnknownSession":         updateRejectsUnknownSession,
		"Update_RejectsAnotherUser":            updateRejectsAnotherUser,
		"Update_RejectedCallCreatesNoSession":  updateRejectedCallCreatesNoSession,
		"List_ReturnsTheSessionsOfAUser":       listReturnsTheSessionsOfAUser,
		"List_ReturnsPages":                    listReturnsPages,
		"List_OmitsDeletedSessions":            listOmitsDeletedSessions,
		"List_ReturnsAllSessionsOfTheTenant":   listReturnsAllSessionsOfTheTenant,
		"List_IsEmptyForAnUnknownUser":         listIsEmptyForAnUnknownUser,
	}
}

// Req: C-1
func updateCreatesASession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	u := memory.SessionUpdate{Ref: ref, Create: true, User: "alice", Metadata: map[string]string{"title": "Holidays"}}
	made := fixture.UpdateSession(t, store, u)
	fixture.RequireEqual(t, session.Session{ID: ref.Session, User: "alice", State: session.Created, Metadata: u.Metadata, Revision: 1}, made)
	require.False(t, made.Created.IsZero())
	fixture.RequireEqual(t, made, fixture.UpdateSession(t, store, u))
	require.Empty(t, fixture.LoadHistory(t, store, ref))

	ask := fixture.NewBegin(ref, "t1", "hello")
	ask.User = "alice"
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, 1, begun.Turn.Number)
	s := fixture.GetSession(t, store, ref)
	require.Equal(t, session.Busy, s.State)
	require.Equal(t, made.Created, s.Created)
	require.Equal(t, u.Metadata, s.Metadata)
}

// updateVerbsFollowTheStateMachine applies every verb in every state. A paused session keeps all of its data.
// Req: C-1
func updateVerbsFollowTheStateMachine(t *testing.T, store memory.Store) {
	for _, state := range []session.State{
		session.Created, session.Ready, session.InputRequired, session.AuthRequired, session.Paused, session.Failed, session.Closed,
	} {
		for _, verb := range []session.Verb{"", session.Pause, session.Resume, session.Close, session.Save} {
			ref := fixture.SessionInState(t, store, state)
			want := fixture.ReadSession(t, store, ref)
			want.Session.State, _ = state.Apply(verb)
			for range 2 {
				fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: verb})
				fixture.RequireEqual(t, want, fixture.ReadSession(t, store, ref))
			}
			fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Resume})
			turn := fixture.BeginTurn(t, store, ref, "next", "go on")
			require.Equal(t, want.Session.Turns+1, turn.Number)
			require.Len(t, fixture.LoadHistory(t, store, ref), len(want.History)+1)
		}
	}
}

func updateBusySessionIsNotPaused(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Busy)
	before := fixture.GetSession(t, store, ref)
	for _, verb := range []session.Verb{session.Pause, session.Close, session.Save} {
		_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: verb, Metadata: map[string]string{"a": "b"}})
		fixture.RequireMode(t, err, failure.SessionBusy, "turn_id", "t1", "trace_id", before.LastTrace)
		fixture.RequireEqual(t, before, fixture.GetSession(t, store, ref))
	}
	s := fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Resume, Metadata: map[string]string{"a": "b"}})
	require.Equal(t, session.Busy, s.State)
	require.Equal(t, "b", s.Metadata["a"])
}

func updateClosedSessionTakesNoTurn(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Closed)
	_, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	fixture.RequireMode(t, err, failure.SessionClosed)
	require.Empty(t, fixture.LoadHistory(t, store, ref))
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Resume})
	fixture.RunTurn(t, store, ref, "t1", "hello", "hi")
}

// Req: LP-10
func updatePausedSessionIsResumedByATurn(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Ready)
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Pause})
	begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t2", "still there?"))
	require.NoError(t, err)
	require.Len(t, begun.History, 3)
	require.Equal(t, 2, begun.Turn.Number)
	require.Equal(t, session.Busy, fixture.GetSession(t, store, ref).State)
}

// Req: LP-19
func updateMetadataIsMerged(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Ready)
	s := fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: map[string]string{"title": "Holidays", "colour": "blue"}})
	require.EqualValues(t, 1, s.Revision)
	s = fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: map[string]string{"title": "", "place": "sea", "none": ""}})
	require.Equal(t, map[string]string{"colour": "blue", "place": "sea"}, s.Metadata)
	require.EqualValues(t, 2, s.Revision)
	for _, same := range []map[string]string{nil, {"place": "sea"}, {"title": ""}} {
		s = fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: same})
		require.EqualValues(t, 2, s.Revision, "nothing changed")
	}
	turn := fixture.BeginTurn(t, store, ref, "t2", "more")
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "yes", session.OutcomeCompleted))
	require.Equal(t, s.Metadata, fixture.GetSession(t, store, ref).Metadata)
}

func updateRevisionIsCompared(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Ready)
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: map[string]string{"a": "1"}})
	for _, revision := range []int64{2, 7} {
		_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{
			Ref: ref, Verb: session.Close, Metadata: map[string]string{"a": "2"},
			IfRevision: revision,
		})
		fixture.RequireMode(t, err, failure.RevisionMismatch, "revision", "1")
	}
	s := fixture.GetSession(t, store, ref)
	require.Equal(t, session.Ready, s.State)
	require.Equal(t, "1", s.Metadata["a"])
	s = fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: map[string]string{"a": "2"}, IfRevision: 1})
	require.EqualValues(t, 2, s.Revision)
}

func updateRejectsTooManyLabels(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Ready)
	labels := map[string]string{}
	for i := range memory.MaxSessionMetadata {
		labels[fmt.Sprintf("label-%d", i)] = "x"
	}
	before := fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: labels})
	_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Close, Metadata: map[string]string{"one": "more"}})
	fixture.RequireMode(t, err, failure.ResourceQuota)
	fixture.RequireEqual(t, before, fixture.GetSession(t, store, ref))
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: map[string]string{"one": "more", "label-0": ""}})
}

func updateRejectsTooLongLabels(t *testing.T, store memory.Store) {
	ref := fixture.SessionInState(t, store, session.Ready)
	labels := map[string]string{}
	for i := range 4 {
		labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", memory.MaxSessionMetadataBytes/4-len("label-0"))
	}
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Metadata: labels})
	_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Metadata: map[string]string{"a": "b"}})
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.Equal(t, labels, fixture.GetSession(t, store, ref).Metadata)
}

func updateRejectsUnknownSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Pause, User: "alice"})
	fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	_, err = store.GetSession(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound)
}

func updateRejectsAnotherUser(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Create: true, User: "alice"})
	for _, create := range []bool{true, false} {
		_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Create: create, User: "bob", Verb: session.Close})
		fixture.RequireMode(t, err, failure.NotFound, "session_id", ref.Session)
	}
	require.Equal(t, session.Created, fixture.GetSession(t, store, ref).State)
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Verb: session.Close}) // an operator's call, which names no user
}

func updateRejectedCallCreatesNoSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Create: true, IfRevision: 3})
	fixture.RequireMode(t, err, failure.RevisionMismatch, "revision", "0")
	long := strings.Repeat("x", memory.MaxSessionMetadataBytes/4)
	_, err = store.UpdateSession(t.Context(),
		memory.SessionUpdate{Ref: ref, Create: true, Metadata: map[string]string{"a": long, "b": long, "c": long, "d": long}})
	fixture.RequireMode(t, err, failure.ResourceQuota)
	_, err = store.GetSession(t.Context(), ref)
	fixture.RequireMode(t, err, failure.NotFound)
}

func listReturnsTheSessionsOfAUser(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	var refs []session.Ref
	for i := range 4 {
		ref := fixture.NewRef()
		refs = append(refs, ref)
		if i%2 == 0 {
			fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Create: true, User: user})
			continue
		}
		ask := fixture.NewBegin(ref, "t1", "hello")
		ask.User = user
		_, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
	}
	fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: fixture.NewRef(), Create: true, User: fixture.UniqueName("bob")})
	listed := fixture.ListSessions(t, store, user)
	require.Len(t, listed, len(refs))
	for i, s := range listed {
		fixture.RequireEqual(t, fixture.GetSession(t, store, session.Ref{Tenant: fixture.Tenant, Session: s.ID}), s)
		if i > 0 {
			require.False(t, s.Created.After(listed[i-1].Created), "those made last come first")
		}
	}
}

func listReturnsPages(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	want := map[string]bool{}
	for range 10 {
		ref := fixture.NewRef()
		want[ref.Session] = true
		fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Create: true, User: user})
	}
	got := map[string]bool{}
	all := fixture.ListSessions(t, store, user)
	for _, s := range all {
		got[s.ID] = true
	}
	require.Equal(t, want, got)
	require.Len(t, all, len(want), "each once")
	page, next, err := store.ListSessions(t.Context(), memory.SessionFilter{Tenant: fixture.Tenant, User: user, Limit: len(want)})
	require.NoError(t, err)
	require.Len(t, page, len(want))
	require.Empty(t, next)
}

func listOmitsDeletedSessions(t *testing.T, store memory.Store) {
	user := fixture.UniqueName("alice")
	one, two := fixture.NewRef(), fixture.NewRef()
	for _, ref := range []session.Ref{one, two} {
		fixture.UpdateSession(t, store, memory.SessionUpdate{Ref: ref, Create: true, User: user})
	}
	fixture.DeleteSession(t, store, one)
	listed := fixture.ListSessions(t, store, user)
	require.Len(t, listed, 1)
	require.Equal(t, two.Session, listed[0].ID)
}

func listReturnsAllSessionsOfTheTenant(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.BeginTurn(t, store, ref, "t1", "hello")
	found := false
	for l := (memory.SessionFilter{Tenant: fixture.Tenant, Limit: memory.MaxPage}); ; {
		page, next, err := store.ListSessions(t.Context(), l)
		require.NoError(t, err)
		for _, s := range page {
			found = found || s.ID == ref.Session
		}
		if next == "" {
			break
		}
		l.After = next
	}
	require.True(t, found)
}

func listIsEmptyForAnUnknownUser(t *testing.T, store memory.Store) {
	require.Empty(t, fixture.ListSessions(t, store, fixture.UniqueName("nobody")))
}
