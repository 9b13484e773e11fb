// Package memorytest is the suite that every memory.Store passes.
package memorytest

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of a session in the stores that the suite is given: small, so that filling one
// is quick.
const (
	MaxMessages = 40
	MaxBytes    = 64 << 10
)

// Run runs the suite. open returns a store with the limits above; it is called once per
// test and may return the same store each time, for the tests use sessions of their own.
// The tests run beside each other.
func Run(t *testing.T, open func(t *testing.T) memory.Store) {
	for _, table := range []tests{
		beginTests(), goOnTests(), holdTests(), knownTests(), userTests(), windowTests(), untrustedTests(), commitTests(), failTests(), journalTests(),
		waitTests(), continueTests(), continueEndTests(), resumeTests(), copyTests(),
		historyTests(), sessionTests(), compactTests(), deleteTests(), eraseTests(), searchTests(), scopeTests(), stateTests(), commitStateTests(), artifactTests(), versionTests(), userArtifactTests(),
		attachTests(), configTests(), ownedTests(),
	} {
		for name, test := range table {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, open(t))
			})
		}
	}
}

// RunRecorded runs the tests of a store that keeps journals behind their steps for Kept.
func RunRecorded(t *testing.T, open func(t *testing.T) memory.Store) {
	for name, test := range recordingTests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// tests is a part of the suite, by the names of its tests.
type tests map[string]func(*testing.T, memory.Store)

const tenant = "default"

// fresh names a session that nobody knows.
func fresh() session.Ref { return session.Ref{Tenant: tenant, Session: rand.Text()} }

// asking is a Begin of the turn with everything set, by a caller of its own.
func asking(ref session.Ref, turnID, text string) memory.Begin {
	return memory.Begin{
		Ref:         ref,
		TurnID:      turnID,
		TraceID:     newTrace(),
		Fingerprint: "fingerprint-of-" + turnID,
		Message:     conversation.User(text),
		Lease:       memory.MaxLease,
		Window:      memory.MaxWindow,
	}
}

func newTrace() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// begin opens a turn that must be new.
func begin(t *testing.T, store memory.Store, ref session.Ref, turnID, text string) session.Turn {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), asking(ref, turnID, text))
	require.NoError(t, err)
	require.Equal(t, memory.FoundBegun, begun.Found)
	return begun.Turn
}

// answering is the commit of the turn's first step, with one message and its outcome.
func answering(ref session.Ref, turn session.Turn, text string, outcome session.Outcome) memory.Commit {
	return memory.Commit{
		Ref:      ref,
		TurnID:   turn.ID,
		Epoch:    turn.Epoch,
		Base:     turn.Sequence,
		Messages: []conversation.Message{conversation.Assistant("echo", text)},
		Result:   execution.Result{Step: 1, Agent: "echo", Text: text},
		Outcome:  outcome,
	}
}

// converse carries one turn to its answer.
func converse(t *testing.T, store memory.Store, ref session.Ref, turnID, question, answer string) session.Turn {
	t.Helper()
	turn := begin(t, store, ref, turnID, question)
	commit(t, store, answering(ref, turn, answer, session.OutcomeCompleted))
	return turn
}

func commit(t *testing.T, store memory.Store, c memory.Commit) int64 {
	t.Helper()
	last, err := store.CommitStep(t.Context(), c)
	require.NoError(t, err)
	return last
}

func history(t *testing.T, store memory.Store, ref session.Ref) []conversation.Message {
	t.Helper()
	messages, err := store.LoadHistory(t.Context(), ref, 0, memory.MaxWindow)
	require.NoError(t, err)
	return messages
}

func get(t *testing.T, store memory.Store, ref session.Ref) session.Session {
	t.Helper()
	s, err := store.GetSession(t.Context(), ref)
	require.NoError(t, err)
	return s
}

// known is the turn t1 as BeginTurn returns it when it is begun again.
func known(t *testing.T, store memory.Store, ref session.Ref) session.Turn {
	t.Helper()
	b, err := store.BeginTurn(t.Context(), asking(ref, "t1", "again"))
	require.NoError(t, err)
	require.NotEqual(t, memory.FoundBegun, b.Found)
	return b.Turn
}

// requireMode asks for a failure.Error of the mode, with the facts (key, value, …).
func requireMode(t *testing.T, err error, mode failure.Mode, facts ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, mode, failure.ModeOf(err), "error: %v", err)
	e, _ := errors.AsType[*failure.Error](err)
	for i := 0; i+1 < len(facts); i += 2 {
		require.Equal(t, facts[i+1], e.Facts[facts[i]], "fact %s of: %v", facts[i], err)
	}
}

// requireSame compares without the times, which the store sets.
func requireSame(t *testing.T, want, got any) {
	t.Helper()
	diff := cmp.Diff(want, got, cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(conversation.Message{}, "Time"),
		cmpopts.IgnoreFields(session.Session{}, "Created", "LastActivity", "Bytes"),
		cmpopts.IgnoreFields(failure.Error{}, "Cause"))
	require.Empty(t, diff, "want -, got +")
}

// unique is a name that no other test uses, for what sessions share.
func unique(name string) string { return name + "-" + rand.Text()[:8] }

// seen is all of a session that a caller can see.
type seen struct {
	Session   session.Session
	History   []conversation.Message
	State     memory.Snapshot
	Artifacts []memory.Artifact
}

// visible reads a session, without its app: state, which others change meanwhile.
func visible(t *testing.T, store memory.Store, ref session.Ref) seen {
	t.Helper()
	all := seen{Session: get(t, store, ref), History: history(t, store, ref), State: snapshot(t, store, ref), Artifacts: artifacts(t, store, ref)}
	maps.DeleteFunc(all.State.Values, func(key string, _ json.RawMessage) bool { return memory.ScopeOf(key) == memory.ScopeApp })
	delete(all.State.Revisions, memory.ScopeApp)
	return all
}
