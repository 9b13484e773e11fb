package execution_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/secret"
)

var alice = execution.Auth{Actor: "alice", Credentials: map[string]secret.Value{"github": secret.New("token-1")}}

func TestAuthFrom_ReturnsAuthOfContext(t *testing.T) {
	ctx := execution.WithAuth(t.Context(), alice)
	auth, ok := execution.AuthFrom(ctx)
	require.True(t, ok)
	require.Equal(t, "alice", auth.Actor)
	token, ok := execution.Credential(ctx, "github")
	require.True(t, ok)
	require.Equal(t, "token-1", token.Reveal())
	_, ok = execution.Credential(ctx, "gitlab")
	require.False(t, ok)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", auth, &auth, auth), "token-1")
}

func TestAuthFrom_IsFalseWithoutAuth(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"no step": t.Context(),
		"none":    execution.WithAuth(execution.WithAuth(t.Context(), alice), execution.Auth{}),
	} {
		_, ok := execution.AuthFrom(ctx)
		require.False(t, ok, name)
		_, ok = execution.Credential(ctx, "github")
		require.False(t, ok, name)
	}
}

// A tool that still runs after its step has ended finds no Auth.
func TestAuthFrom_IsFalseAfterTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step, end := context.WithCancel(t.Context())
		kept := context.WithoutCancel(execution.WithAuth(step, alice))
		_, ok := execution.AuthFrom(kept)
		require.True(t, ok)
		end()
		synctest.Wait()
		_, ok = execution.AuthFrom(kept)
		require.False(t, ok)
	})
}

// Only the tool to which a credential was lent finds it, and only until the turn ends.
func TestLendCredential_LendsToOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step, end := context.WithCancel(t.Context())
		turn := execution.WithAuth(step, alice)
		mine, another := execution.WithHolder(turn, "clerk/mail"), execution.WithHolder(turn, "clerk/post")
		finds := func(ctx context.Context, name string) string {
			v, _ := execution.Credential(ctx, name)
			return v.Reveal()
		}
		execution.LendCredential(mine, "mailbox", secret.New("hunter2"))
		require.Equal(t, "hunter2", finds(mine, "mailbox"))
		require.Equal(t, "token-1", finds(mine, "github"))
		for _, ctx := range []context.Context{turn, another} {
			_, ok := execution.Credential(ctx, "mailbox")
			require.False(t, ok)
		}
		execution.WithdrawCredential(mine, "github")
		_, ok := execution.Credential(mine, "github")
		require.False(t, ok)
		require.Equal(t, "token-1", finds(another, "github"))
		require.Len(t, alice.Credentials, 1)

		execution.LendCredential(turn, "unknown", secret.New("x"))
		execution.LendCredential(execution.WithHolder(t.Context(), "clerk/mail"), "mailbox", secret.New("x"))
		_, ok = execution.AuthFrom(execution.WithHolder(t.Context(), "clerk/mail"))
		require.False(t, ok, "there is no turn")

		kept := context.WithoutCancel(mine)
		end()
		synctest.Wait()
		execution.LendCredential(kept, "mailbox", secret.New("hunter2"))
		_, ok = execution.AuthFrom(kept)
		require.False(t, ok)
	})
}

func TestLendCredential_WorksWithoutCredentialsOfTheTurn(t *testing.T) {
	ctx := execution.WithHolder(execution.WithAuth(t.Context(), execution.Auth{}), "clerk/mail")
	execution.LendCredential(ctx, "mailbox", secret.New("hunter2"))
	auth, ok := execution.AuthFrom(ctx)
	require.True(t, ok)
	require.Equal(t, "hunter2", auth.Credentials["mailbox"].Reveal())
	require.NotContains(t, fmt.Sprintf("%+v %#v", auth, auth), "hunter2")
}

// Printing or encoding an Auth, or a panic with one, reveals neither the actor (LP-18) nor the credentials.
func TestAuth_PrintsRedacted(t *testing.T) {
	encoded, err := json.Marshal(map[string]any{"auth": alice, "at": &alice})
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %d %x %q", alice, alice, alice, alice, alice, &alice, []execution.Auth{alice}), string(encoded)} {
		require.Contains(t, text, secret.Redacted)
		require.NotContains(t, text, "alice")
		require.NotContains(t, text, fmt.Sprintf("%x", "alice"))
	}
}
