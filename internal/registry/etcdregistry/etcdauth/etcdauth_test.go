package etcdauth_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/parallel"
)

func TestMain(m *testing.M) {
	parallel.SetMinimum(6)
	goleak.VerifyTestMain(m)
}

// Each user of a mesh may do in etcd exactly what it needs. Some agent names are prefixes of others, which must
// give no access.
func TestProvision_GrantsEachUserItsRightsOnly(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartGuarded(t, t.TempDir(), "a", "ab")
	keys := []string{
		"/troupe/v1/reg/a/1", "/troupe/v1/reg/ab/1", "/troupe/v1/reg/orchestrator/1", "/troupe/v1/reg/a",
		"/troupe/v1/desired/a/1", "/troupe/v1/desired/ab/1", "/troupe/v1/store/redis", "/troupe/v1/other", "/", "x",
	}
	const none, read, write = "-", "r", "rw"
	for user, may := range map[string][]string{
		"worker/a":     {write, none, none, none, read, read, none, none, none, none},
		"worker/ab":    {none, write, none, none, read, read, none, none, none, none},
		"orchestrator": {read, read, read, read, write, write, none, none, none, none},
		"memory":       {none, none, none, none, read, read, write, none, none, none},
		"root":         {write, write, write, write, write, write, write, write, write, write},
		"worker/b":     {none, none, none, none, none, none, none, none, none, none}, // not provisioned
		"worker":       {none, none, none, none, none, none, none, none, none, none},
		"a":            {none, none, none, none, none, none, none, none, none, none},
		"":             {none, none, none, none, none, none, none, none, none, none},
	} {
		t.Run("of "+user, func(t *testing.T) {
			client := etcd.ClientAs(user)
			for i, key := range keys {
				require.Equal(t, may[i] != none, etcdtest.MayRead(t, client, key), "%s reads %s", user, key)
				require.Equal(t, may[i] == write, etcdtest.MayWrite(t, client, key), "%s writes %s", user, key)
			}
		})
	}
}

// Only root can access anything besides its own keys: other keys, the history, users, roles and the leases of
// others.
func TestProvision_OnlyRootAdministers(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartGuarded(t, t.TempDir(), "a", "b")
	granted, err := etcd.ClientAs("worker/b").Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = etcd.ClientAs("worker/b").Put(t.Context(), "/troupe/v1/reg/b/1", "", clientv3.WithLease(granted.ID))
	require.NoError(t, err)
	for _, user := range []string{"worker/a", "orchestrator", "memory", "unknown"} {
		c, ctx := etcd.ClientAs(user), t.Context()
		for what, err := range map[string]error{
			"reads all":                errorOf(c.Get(ctx, "", clientv3.WithPrefix())),
			"deletes all":              errorOf(c.Delete(ctx, "\x00", clientv3.WithFromKey())),
			"compares what it may not": errorOf(c.Txn(ctx).If(clientv3.Compare(clientv3.Value("/other"), "=", "x")).Commit()),
			"makes users":              errorOf(c.UserAdd(ctx, "x", "y")),
			"makes roles":              errorOf(c.RoleAdd(ctx, "x")),
			"becomes root":             errorOf(c.UserGrantRole(ctx, user, "root")),
			"turns it off":             errorOf(c.AuthDisable(ctx)),
			"lists users":              errorOf(c.UserList(ctx)),
			"revokes another's lease":  errorOf(c.Revoke(ctx, granted.ID)),
			"keeps another's lease":    errorOf(c.KeepAliveOnce(ctx, granted.ID)),
			"defragments":              errorOf(c.Defragment(ctx, etcd.Endpoints()[0])),
			"adds a member":            errorOf(c.MemberAdd(ctx, []string{"http://127.0.0.1:1"})),
		} {
			require.Error(t, err, "%s %s", user, what)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// etcd rejects a client without a certificate, or with a certificate of another CA, before it handles any request.
func TestProvision_RequiresACertificate(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartGuarded(t, t.TempDir(), "a")
	foreign, err := identity.OpenCA(t.TempDir())
	require.NoError(t, err)
	root, err := foreign.ExternalUserCredentials(etcdauth.Root)
	require.NoError(t, err)
	for name, client := range map[string]*clientv3.Client{
		"of another CA": etcd.ClientWith(root), "in plain text": etcd.PlaintextClient(),
		"with none": etcd.AnonymousClient(),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := client.Get(ctx, "/troupe/v1/reg/a/1")
		cancel()
		require.Error(t, err, name)
	}
}

// Provision can run again: it keeps correct users and revokes surplus rights.
func TestProvision_IsIdempotent(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartGuarded(t, t.TempDir(), "a", "gone")
	root := etcd.Client()
	before, err := root.AuthStatus(t.Context())
	require.NoError(t, err)
	others, err := etcdauth.Provision(t.Context(), root, []string{"a"})
	require.NoError(t, err)
	require.Equal(t, []string{"worker/gone"}, others)
	after, err := root.AuthStatus(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.AuthRevision, after.AuthRevision)

	_, err = root.RoleGrantPermission(t.Context(), "worker/a", "x", "", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = root.UserGrantRole(t.Context(), "worker/a", "orchestrator")
	require.NoError(t, err)
	require.True(t, etcdtest.MayWrite(t, etcd.ClientAs("worker/a"), "x"))
	_, err = etcdauth.Provision(t.Context(), root, []string{"a"})
	require.NoError(t, err)
	for _, key := range []string{"x", "/troupe/v1/desired/a/1"} {
		require.False(t, etcdtest.MayWrite(t, etcd.ClientAs("worker/a"), key), key)
	}
	_, err = etcdauth.Provision(t.Context(), root, []string{"a/b"})
	require.True(t, failure.Is(err, failure.UserInvalidInput), "got %v", err)
	_, err = etcdauth.Provision(t.Context(), etcd.ClientAs("worker/a"), []string{"a"})
	require.ErrorContains(t, err, "permission denied")
}

// The registry works with provisioned users. A worker registers, the orchestrator sees it and sets a desired
// state, and the worker receives that state. A worker of an agent that is not provisioned is rejected with a
// reason until it is provisioned.
func TestRegistry_WorksWithProvisionedUsers(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartGuarded(t, t.TempDir(), "a")
	r := func(user string) *etcdregistry.Registry {
		return etcdregistry.New(etcd.ClientAs(user), zap.NewNop(), etcdregistry.Config{TTL: 2 * time.Second})
	}
	o := registrytest.Observe(t, r("orchestrator"))
	require.Empty(t, o.NextList())
	reg := registrytest.Register(t, r("worker/a"), registrytest.NewInstance("a", "1"))
	o.NextPut()
	require.NoError(t, reg.SetState(t.Context(), lifecycle.Ready))
	require.Equal(t, lifecycle.Ready, o.NextPut().State)
	require.NoError(t, r("orchestrator").SetDesired(t.Context(), registrytest.NewDesiredState("a", "1", registry.Pause)))
	told := make(chan map[registry.Key]registry.DesiredState, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- r("worker/a").WatchDesiredStates(ctx, func(all map[registry.Key]registry.DesiredState) { told <- all })
	}()
	require.Len(t, <-told, 1)
	cancel()
	require.NoError(t, <-ended)
	err := r("worker/a").SetDesired(t.Context(), registrytest.NewDesiredState("a", "1", registry.Drain))
	require.True(t, failure.Is(err, failure.PolicySecurity), "got %v", err)
	require.ErrorContains(t, err, "troupe provision etcd")

	core, logs := observer.New(zap.WarnLevel)
	ctx, cancel = context.WithCancel(t.Context())
	log := zap.New(core, zap.Hooks(func(zapcore.Entry) error { cancel(); return nil }))
	_, err = etcdregistry.New(etcd.ClientAs("worker/a"), log, etcdregistry.Config{}).Register(ctx, registrytest.NewInstance("b", "1"))
	require.Error(t, err)
	require.Contains(t, logs.All()[0].ContextMap()["error"], "does not let the user of this certificate do that")
	late := etcdregistry.New(etcd.ClientAs("worker/b"), zap.NewNop(), etcdregistry.Config{OnDenied: func(ctx context.Context) error {
		_, err := etcdauth.Provision(ctx, etcd.Client(), []string{"b"})
		return err
	}})
	registrytest.Register(t, late, registrytest.NewInstance("b", "1"))
	require.Equal(t, "b", o.NextPut().Agent)
}
