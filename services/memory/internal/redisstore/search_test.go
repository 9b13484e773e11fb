package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/redistest"
)

// Each stored turn adds its session to the search index of the user without a separate call. The session is
// indexed once, even after another turn, a repeated turn, a compaction or a clear. A search covers one user in one
// tenant, which corresponds to the app of other SDKs.
// Req: AD-24
func TestSearch_IndexesEachSessionOfTheUserOnce(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]memory.Store{
		"redis":  openStore(t, "redis://"+redistest.Start(t)),
		"oracle": inmem.New(inmem.Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes}),
	} {
		t.Run(name, func(t *testing.T) {
			one := session.Ref{Tenant: "default", Session: "one"}
			found := func(tenant, user string) []string {
				t.Helper()
				hits, err := store.SearchMemory(t.Context(), memory.Search{Tenant: tenant, User: user, Query: "whale", Limit: memory.MaxHits})
				require.NoError(t, err)
				var all []string
				for _, h := range hits {
					all = append(all, fmt.Sprintf("%s %d %s", h.Session, h.Message.Sequence, h.Message.Text))
				}
				return all
			}
			require.Empty(t, found("default", "alice"))

			runTurnWithText(t, store, one, "alice", "t1", "a whale")
			runTurnWithText(t, store, one, "alice", "t1", "a whale")
			require.Equal(t, []string{"one 1 a whale"}, found("default", "alice"), "a turn that is repeated")
			runTurnWithText(t, store, one, "alice", "t2", "two whale calves, one whale")
			require.Equal(t, []string{"one 3 two whale calves, one whale", "one 1 a whale"}, found("default", "alice"), "the session goes on")

			// The same words occur in sessions of another user and of no user. They also occur in a session of
			// another tenant, whose user has the same name.
			runTurnWithText(t, store, session.Ref{Tenant: "default", Session: "two"}, "bob", "t1", "bob's whale")
			runTurnWithText(t, store, session.Ref{Tenant: "default", Session: "three"}, "", "t1", "other whale")
			runTurnWithText(t, store, session.Ref{Tenant: "other", Session: "one"}, "alice", "t1", "the other alice's whale")
			require.Len(t, found("default", "alice"), 2)
			require.Equal(t, []string{"two 1 bob's whale"}, found("default", "bob"))
			require.Equal(t, []string{"one 1 the other alice's whale"}, found("other", "alice"))
			require.Empty(t, found("other", "bob"))

			_, err := store.CompactSession(t.Context(), memory.Compact{Ref: one, Keep: 2, Summary: "Of a whale."})
			require.NoError(t, err)
			require.Equal(t, []string{"one 3 two whale calves, one whale"}, found("default", "alice"), "what was taken out is not found")
			require.NoError(t, store.ClearSession(t.Context(), one))
			require.Empty(t, found("default", "alice"))
			runTurnWithText(t, store, one, "alice", "t3", "a whale again")
			require.Equal(t, []string{"one 5 a whale again"}, found("default", "alice"))
			require.NoError(t, errorOf(store.DeleteSession(t.Context(), one)))
			require.Empty(t, found("default", "alice"))
			require.Equal(t, []string{"one 1 the other alice's whale"}, found("other", "alice"))
		})
	}
}

// runTurnWithText runs a turn, or repeats it, with a text of the user.
func runTurnWithText(t *testing.T, store memory.Store, ref session.Ref, user, turnID, text string) {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, User: user, TurnID: turnID, TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: text,
		Message: conversation.User(text), LeaseTTL: time.Minute, Window: 1,
	})
	require.NoError(t, err)
	if begun.Status == memory.StatusClosed {
		return
	}
	_, err = store.CommitStep(t.Context(), memory.Commit{
		Ref: ref, TurnID: turnID, Epoch: begun.Turn.Epoch, Base: begun.Turn.Sequence, Outcome: session.OutcomeCompleted,
		Messages: []conversation.Message{conversation.Assistant("echo", "I see.")}, Result: execution.Result{Step: 1, Agent: "echo", Text: "I see."},
	})
	require.NoError(t, err)
}
