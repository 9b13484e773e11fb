package execution_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/secret"
)

var alice = execution.Auth{Actor: "alice", Credentials: map[string]secret.Value{"github": secret.New("token-1")}}

func TestAuth_IsFoundUnderItsContext(t *testing.T) {
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

func TestAuth_OfATurnThatBringsNoneIsNone(t *testing.T) {
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

// A tool that goes on behind its step has nothing any more.
func TestAuth_IsForgottenWhenItsStepEnds(t *testing.T) {
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
