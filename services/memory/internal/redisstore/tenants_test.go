package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/redistest"
)

func TestStore_ListsTenants(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	all, err := s.Tenants(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"default"}, all, "whose sessions are older than the list")
	for _, tenant := range []string{"zeta", "acme", "acme"} {
		b := newBegin("s1", "t1")
		b.Ref.Tenant = tenant
		_, err := s.BeginTurn(t.Context(), b)
		require.NoError(t, err)
	}
	_, err = s.UpdateSession(t.Context(), memory.SessionUpdate{Ref: session.Ref{Tenant: "made", Session: "s1"}, Verb: session.Pause, Create: true})
	require.False(t, failure.Is(err, failure.SystemNetwork), "%v", err)
	all, err = s.Tenants(t.Context())
	require.NoError(t, err)
	require.Subset(t, all, []string{"acme", "default", "zeta"})
}

// Expire affects only one tenant. A session with the same id in another tenant is kept.
func TestStore_ExpiresSessionsOfOneTenant(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	for _, tenant := range []string{"acme", "umbrella"} {
		_, err := s.UpdateSession(t.Context(), memory.SessionUpdate{Ref: session.Ref{Tenant: tenant, Session: "s1"}, Create: true})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		count, err := s.Expire(t.Context(), "acme", time.Millisecond)
		require.NoError(t, err)
		return count == 1
	}, 10*time.Second, 5*time.Millisecond)
	_, err := s.GetSession(t.Context(), session.Ref{Tenant: "acme", Session: "s1"})
	require.True(t, failure.Is(err, failure.SessionDeleted), "%v", err)
	_, err = s.GetSession(t.Context(), session.Ref{Tenant: "umbrella", Session: "s1"})
	require.NoError(t, err)
}
