package memorytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

func sessionTests() tests {
	return tests{
		"Update_CreatesASession":               updateCreatesASession,
		"Update_VerbsFollowTheStateMachine":    updateVerbsFollowTheStateMachine,
		"Update_BusySessionIsNotSetAside":      updateBusySessionIsNotSetAside,
		"Update_ClosedSessionTakesNoTurn":      updateClosedSessionTakesNoTurn,
		"Update_PausedSessionIsResumedByATurn": updatePausedSessionIsResumedByATurn,
		"Update_MetadataIsMerged":              updateMetadataIsMerged,
		"Update_RevisionIsCompared":            updateRevisionIsCompared,
		"Update_RefusesTooManyLabels":          updateRefusesTooManyLabels,
		"Update_RefusesTooLongLabels":          updateRefusesTooLongLabels,
		"Update_RefusesUnknownSession":         updateRefusesUnknownSession,
		"Update_RefusesAnotherUser":            updateRefusesAnotherUser,
		"Update_WhatIsRefusedMakesNoSession":   updateWhatIsRefusedMakesNoSession,
		"List_ReturnsTheSessionsOfAUser":       listReturnsTheSessionsOfAUser,
		"List_Pages":                           listPages,
		"List_LeavesOutDeletedSessions":        listLeavesOutDeletedSessions,
		"List_ReturnsAllSessionsOfTheTenant":   listReturnsAllSessionsOfTheTenant,
		"List_OfNobodyKnownIsEmpty":            listOfNobodyKnownIsEmpty,
	}
}

func update(t *testing.T, store memory.Store, u memory.Update) session.Session {
	t.Helper()
	s, err := store.UpdateSession(t.Context(), u)
	require.NoError(t, err)
	requireSame(t, get(t, store, u.Ref), s)
	return s
}

// list reads the sessions of a user by pages of three.
func list(t *testing.T, store memory.Store, user string) []session.Session {
	t.Helper()
	var all []session.Session
	for l := (memory.List{Tenant: tenant, User: user, Limit: 3}); ; {
		page, next, err := store.ListSessions(t.Context(), l)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), l.Limit)
		all = append(all, page...)
		if next == "" {
			return all
		}
		l.After = next
	}
}

// Req: C-1
func updateCreatesASession(t *testing.T, store memory.Store) {
	ref := fresh()
	u := memory.Update{Ref: ref, Create: true, User: "alice", Metadata: map[string]string{"title": "Holidays"}}
	made := update(t, store, u)
	requireSame(t, session.Session{ID: ref.Session, User: "alice", State: session.Created, Metadata: u.Metadata, Revision: 1}, made)
	require.False(t, made.Created.IsZero())
	requireSame(t, made, update(t, store, u))
	require.Empty(t, history(t, store, ref))

	ask := asking(ref, "t1", "hello")
	ask.User = "alice"
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, 1, begun.Turn.Number)
	s := get(t, store, ref)
	require.Equal(t, session.Busy, s.State)
	require.Equal(t, made.Created, s.Created)
	require.Equal(t, u.Metadata, s.Metadata)
}

// inState makes a session in the state.
func inState(t *testing.T, store memory.Store, state session.State) session.Ref {
	t.Helper()
	ref := fresh()
	switch state {
	case session.Created:
		update(t, store, memory.Update{Ref: ref, Create: true})
	case session.Paused:
		update(t, store, memory.Update{Ref: ref, Create: true, Verb: session.Pause})
	case session.Closed:
		update(t, store, memory.Update{Ref: ref, Create: true, Verb: session.Close})
	default:
		turn := begin(t, store, ref, "t1", "hello")
		switch state {
		case session.Ready:
			commit(t, store, answering(ref, turn, "hi", session.OutcomeCompleted))
		case session.InputRequired:
			commit(t, store, answering(ref, turn, "hi?", session.OutcomeInputRequired))
		case session.AuthRequired:
			commit(t, store, answering(ref, turn, "hi?", session.OutcomeAuthRequired))
		case session.Failed:
			_, err := store.FailTurn(t.Context(), failing(ref, turn, session.OutcomeFailed))
			require.NoError(t, err)
		default: // it is busy
		}
	}
	require.Equal(t, state, get(t, store, ref).State)
	return ref
}

// updateVerbsFollowTheStateMachine does every verb in every state. What pause sets aside is
// there again in full, for whoever comes next.
// Req: C-1
func updateVerbsFollowTheStateMachine(t *testing.T, store memory.Store) {
	for _, state := range []session.State{
		session.Created, session.Ready, session.InputRequired, session.AuthRequired, session.Paused, session.Failed, session.Closed,
	} {
		for _, verb := range []session.Verb{"", session.Pause, session.Resume, session.Close} {
			ref := inState(t, store, state)
			want := visible(t, store, ref)
			want.Session.State, _ = state.After(verb)
			for range 2 {
				update(t, store, memory.Update{Ref: ref, Verb: verb})
				requireSame(t, want, visible(t, store, ref))
			}
			update(t, store, memory.Update{Ref: ref, Verb: session.Resume})
			turn := begin(t, store, ref, "next", "go on")
			require.Equal(t, want.Session.Turns+1, turn.Number)
			require.Len(t, history(t, store, ref), len(want.History)+1)
		}
	}
}

func updateBusySessionIsNotSetAside(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Busy)
	before := get(t, store, ref)
	for _, verb := range []session.Verb{session.Pause, session.Close} {
		_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Verb: verb, Metadata: map[string]string{"a": "b"}})
		requireMode(t, err, failure.SessionBusy, "turn_id", "t1", "trace_id", before.LastTrace)
		requireSame(t, before, get(t, store, ref))
	}
	s := update(t, store, memory.Update{Ref: ref, Verb: session.Resume, Metadata: map[string]string{"a": "b"}})
	require.Equal(t, session.Busy, s.State)
	require.Equal(t, "b", s.Metadata["a"])
}

func updateClosedSessionTakesNoTurn(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Closed)
	_, err := store.BeginTurn(t.Context(), asking(ref, "t1", "hello"))
	requireMode(t, err, failure.SessionClosed)
	require.Empty(t, history(t, store, ref))
	update(t, store, memory.Update{Ref: ref, Verb: session.Resume})
	converse(t, store, ref, "t1", "hello", "hi")
}

// Req: LP-10
func updatePausedSessionIsResumedByATurn(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Ready)
	update(t, store, memory.Update{Ref: ref, Verb: session.Pause})
	begun, err := store.BeginTurn(t.Context(), asking(ref, "t2", "still there?"))
	require.NoError(t, err)
	require.Len(t, begun.History, 3)
	require.Equal(t, 2, begun.Turn.Number)
	require.Equal(t, session.Busy, get(t, store, ref).State)
}

// Req: LP-19
func updateMetadataIsMerged(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Ready)
	s := update(t, store, memory.Update{Ref: ref, Metadata: map[string]string{"title": "Holidays", "colour": "blue"}})
	require.EqualValues(t, 1, s.Revision)
	s = update(t, store, memory.Update{Ref: ref, Metadata: map[string]string{"title": "", "place": "sea", "none": ""}})
	require.Equal(t, map[string]string{"colour": "blue", "place": "sea"}, s.Metadata)
	require.EqualValues(t, 2, s.Revision)
	for _, same := range []map[string]string{nil, {"place": "sea"}, {"title": ""}} {
		s = update(t, store, memory.Update{Ref: ref, Metadata: same})
		require.EqualValues(t, 2, s.Revision, "nothing changed")
	}
	turn := begin(t, store, ref, "t2", "more")
	commit(t, store, answering(ref, turn, "yes", session.OutcomeCompleted))
	require.Equal(t, s.Metadata, get(t, store, ref).Metadata)
}

func updateRevisionIsCompared(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Ready)
	update(t, store, memory.Update{Ref: ref, Metadata: map[string]string{"a": "1"}})
	for _, revision := range []int64{2, 7} {
		_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Verb: session.Close, Metadata: map[string]string{"a": "2"}, IfRevision: revision})
		requireMode(t, err, failure.RevisionMismatch, "revision", "1")
	}
	s := get(t, store, ref)
	require.Equal(t, session.Ready, s.State)
	require.Equal(t, "1", s.Metadata["a"])
	s = update(t, store, memory.Update{Ref: ref, Metadata: map[string]string{"a": "2"}, IfRevision: 1})
	require.EqualValues(t, 2, s.Revision)
}

func updateRefusesTooManyLabels(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Ready)
	labels := map[string]string{}
	for i := range memory.MaxMetadata {
		labels[fmt.Sprintf("label-%d", i)] = "x"
	}
	before := update(t, store, memory.Update{Ref: ref, Metadata: labels})
	_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Verb: session.Close, Metadata: map[string]string{"one": "more"}})
	requireMode(t, err, failure.ResourceQuota)
	requireSame(t, before, get(t, store, ref))
	update(t, store, memory.Update{Ref: ref, Metadata: map[string]string{"one": "more", "label-0": ""}})
}

func updateRefusesTooLongLabels(t *testing.T, store memory.Store) {
	ref := inState(t, store, session.Ready)
	labels := map[string]string{}
	for i := range 4 {
		labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", memory.MaxMetadataBytes/4-len("label-0"))
	}
	update(t, store, memory.Update{Ref: ref, Metadata: labels})
	_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Metadata: map[string]string{"a": "b"}})
	requireMode(t, err, failure.ResourceQuota)
	require.Equal(t, labels, get(t, store, ref).Metadata)
}

func updateRefusesUnknownSession(t *testing.T, store memory.Store) {
	ref := fresh()
	_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Verb: session.Pause, User: "alice"})
	requireMode(t, err, failure.NotFound, "session_id", ref.Session)
	_, err = store.GetSession(t.Context(), ref)
	requireMode(t, err, failure.NotFound)
}

func updateRefusesAnotherUser(t *testing.T, store memory.Store) {
	ref := fresh()
	update(t, store, memory.Update{Ref: ref, Create: true, User: "alice"})
	for _, create := range []bool{true, false} {
		_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Create: create, User: "bob", Verb: session.Close})
		requireMode(t, err, failure.NotFound, "session_id", ref.Session)
	}
	require.Equal(t, session.Created, get(t, store, ref).State)
	update(t, store, memory.Update{Ref: ref, Verb: session.Close}) // an operator, who names nobody
}

func updateWhatIsRefusedMakesNoSession(t *testing.T, store memory.Store) {
	ref := fresh()
	_, err := store.UpdateSession(t.Context(), memory.Update{Ref: ref, Create: true, IfRevision: 3})
	requireMode(t, err, failure.RevisionMismatch, "revision", "0")
	long := strings.Repeat("x", memory.MaxMetadataBytes/4)
	_, err = store.UpdateSession(t.Context(), memory.Update{Ref: ref, Create: true, Metadata: map[string]string{"a": long, "b": long, "c": long, "d": long}})
	requireMode(t, err, failure.ResourceQuota)
	_, err = store.GetSession(t.Context(), ref)
	requireMode(t, err, failure.NotFound)
}

func listReturnsTheSessionsOfAUser(t *testing.T, store memory.Store) {
	user := unique("alice")
	var refs []session.Ref
	for i := range 4 {
		ref := fresh()
		refs = append(refs, ref)
		if i%2 == 0 {
			update(t, store, memory.Update{Ref: ref, Create: true, User: user})
			continue
		}
		ask := asking(ref, "t1", "hello")
		ask.User = user
		_, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
	}
	update(t, store, memory.Update{Ref: fresh(), Create: true, User: unique("bob")})
	listed := list(t, store, user)
	require.Len(t, listed, len(refs))
	for i, s := range listed {
		requireSame(t, get(t, store, session.Ref{Tenant: tenant, Session: s.ID}), s)
		if i > 0 {
			require.False(t, s.Created.After(listed[i-1].Created), "those made last come first")
		}
	}
}

func listPages(t *testing.T, store memory.Store) {
	user := unique("alice")
	want := map[string]bool{}
	for range 10 {
		ref := fresh()
		want[ref.Session] = true
		update(t, store, memory.Update{Ref: ref, Create: true, User: user})
	}
	got := map[string]bool{}
	all := list(t, store, user)
	for _, s := range all {
		got[s.ID] = true
	}
	require.Equal(t, want, got)
	require.Len(t, all, len(want), "each once")
	page, next, err := store.ListSessions(t.Context(), memory.List{Tenant: tenant, User: user, Limit: len(want)})
	require.NoError(t, err)
	require.Len(t, page, len(want))
	require.Empty(t, next)
}

func listLeavesOutDeletedSessions(t *testing.T, store memory.Store) {
	user := unique("alice")
	one, two := fresh(), fresh()
	for _, ref := range []session.Ref{one, two} {
		update(t, store, memory.Update{Ref: ref, Create: true, User: user})
	}
	remove(t, store, one)
	listed := list(t, store, user)
	require.Len(t, listed, 1)
	require.Equal(t, two.Session, listed[0].ID)
}

func listReturnsAllSessionsOfTheTenant(t *testing.T, store memory.Store) {
	ref := fresh()
	begin(t, store, ref, "t1", "hello")
	found := false
	for l := (memory.List{Tenant: tenant, Limit: memory.MaxPage}); ; {
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

func listOfNobodyKnownIsEmpty(t *testing.T, store memory.Store) {
	require.Empty(t, list(t, store, unique("nobody")))
}
