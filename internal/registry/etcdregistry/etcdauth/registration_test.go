package etcdauth_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/test/etcdtest"
)

const ttl = 2 * time.Second

// newWorkerRegistry returns a registry for a worker of the agent and the configuration with the certificate files
// that it reads.
func newWorkerRegistry(t *testing.T, etcd *etcdtest.Etcd, ca *identity.CA, agent string) (*etcdregistry.Registry, identity.Config) {
	t.Helper()
	files, err := ca.WriteFiles(identity.Worker, agent)
	require.NoError(t, err)
	self, err := identity.Open(files, identity.Worker, agent, zap.NewNop())
	require.NoError(t, err)
	creds, err := etcdregistry.Security{}.Credentials(etcd.Endpoints(), self, zap.NewNop())
	require.NoError(t, err)
	return etcdregistry.New(etcd.ClientWith(creds), zap.NewNop(), etcdregistry.Config{TTL: ttl}), files
}

// A registration survives a new certificate and a restart of etcd, because there is no token that could expire
// (guarantees, section 5.2.6).
func TestRegistration_SurvivesANewCertificateAndARestartOfEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	etcd := etcdtest.StartGuarded(t, dir, "a")
	ca, err := identity.OpenCA(dir)
	require.NoError(t, err)
	r, files := newWorkerRegistry(t, etcd, ca, "a")
	reg := registrytest.Register(t, r, registrytest.NewInstance("a", "1"))
	before := createRevision(t, etcd)

	first, err := os.ReadFile(files.Cert)
	require.NoError(t, err)
	_, err = ca.WriteFiles(identity.Worker, "a")
	require.NoError(t, err)
	second, err := os.ReadFile(files.Cert)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	etcd.Stop()
	etcd.Start()
	require.Eventually(t, func() bool { return reg.SetState(t.Context(), lifecycle.Ready) == nil }, 30*time.Second, 50*time.Millisecond)
	idle := time.NewTimer(2 * ttl)
	defer idle.Stop()
	<-idle.C
	require.Equal(t, before, createRevision(t, etcd), "the registration was lost and created again")
	lease, _ := reg.Lease()
	require.Equal(t, lifecycle.LeaseOK, lease)
}

// createRevision returns the create revision of the registered instance's key.
func createRevision(t *testing.T, etcd *etcdtest.Etcd) int64 {
	t.Helper()
	got, err := etcd.Client().Get(t.Context(), "/troupe/v1/reg/a/1")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	return got.Kvs[0].CreateRevision
}

// After the files are replaced, the next connection presents the new certificate.
func TestSecurity_ReloadsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	etcd := etcdtest.StartGuarded(t, dir, "a", "b")
	ca, err := identity.OpenCA(dir)
	require.NoError(t, err)
	mine := filepath.Join(t.TempDir(), "tls")
	lay := func(agent string) {
		made, err := ca.WriteFiles(identity.Worker, agent)
		require.NoError(t, err)
		require.NoError(t, os.Rename(made.Cert, mine+".crt"))
		require.NoError(t, os.Rename(made.Key, mine+".key"))
	}
	lay("a")
	security := etcdregistry.Security{CA: filepath.Join(dir, "ca.crt"), Cert: mine + ".crt", Key: mine + ".key"}
	creds, err := security.Credentials(etcd.Endpoints(), nil, zap.NewNop())
	require.NoError(t, err)
	client := etcd.ClientWith(creds)
	require.True(t, etcdtest.MayWrite(t, client, "/troupe/v1/reg/a/1"))
	lay("b")
	require.True(t, etcdtest.MayWrite(t, client, "/troupe/v1/reg/a/1"), "an existing connection is kept")
	etcd.Stop()
	etcd.Start()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Get(ctx, "/troupe/v1/reg/b/1")
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
	require.False(t, etcdtest.MayWrite(t, client, "/troupe/v1/reg/a/1"))
}

// With authentication enabled, a lease that is not renewed still expires, because etcd itself may revoke it.
func TestRegistration_ExpiresAfterItsProcess(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartGuarded(t, t.TempDir(), "a")
	o := registrytest.Observe(t, etcdregistry.New(etcd.ClientAs("orchestrator"), zap.NewNop(), etcdregistry.Config{}))
	require.Empty(t, o.NextList())
	client := etcd.ClientAs("worker/a")
	granted, err := client.Grant(t.Context(), int64(ttl/time.Second))
	require.NoError(t, err)
	value, err := instancewire.MarshalInstance(registrytest.NewInstance("a", "1"))
	require.NoError(t, err)
	_, err = client.Put(t.Context(), "/troupe/v1/reg/a/1", value, clientv3.WithLease(granted.ID))
	require.NoError(t, err)
	o.NextPut()
	gone := o.Next()
	require.Equal(t, &registry.Key{Agent: "a", ID: "1"}, gone.Delete)
}

// Invalid settings are rejected before any connection is made.
func TestSecurity_RejectsInvalidSettings(t *testing.T) {
	t.Parallel()
	secure, plain := []string{"https://127.0.0.1:1"}, []string{"127.0.0.1:1"}
	for says, c := range map[string]struct {
		security etcdregistry.Security
		etcd     []string
	}{
		"begin them with https://":                 {etcdregistry.Security{CA: "ca.pem"}, plain},
		"some ask for TLS and others do not":       {etcdregistry.Security{}, []string{secure[0], plain[0]}},
		"--etcd-cert and --etcd-key belong":        {etcdregistry.Security{Cert: "a.pem"}, secure},
		"--etcd-ca: open /no/such/ca: no such":     {etcdregistry.Security{CA: "/no/such/ca"}, secure},
		"--etcd-cert: open /no/such/cert: no such": {etcdregistry.Security{Cert: "/no/such/cert", Key: "/no/such/key"}, secure},
	} {
		_, err := c.security.Credentials(c.etcd, nil, zap.NewNop())
		require.ErrorContains(t, err, says)
	}
}

// No request is sent to an etcd whose certificate is not trusted, and the log says why.
func TestSecurity_LogsWhyTheServerIsRejected(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartGuarded(t, t.TempDir())
	self, err := identity.Open(identity.Config{DevCA: t.TempDir()}, identity.Memory, "", zap.NewNop())
	require.NoError(t, err)
	core, logs := observer.New(zap.WarnLevel)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	creds, err := etcdregistry.Security{}.Credentials(etcd.Endpoints(), self, zap.New(core, zap.Hooks(func(zapcore.Entry) error { cancel(); return nil })))
	require.NoError(t, err)
	_, err = etcd.ClientWith(creds).Get(ctx, "x")
	require.Error(t, err)
	require.NotEmpty(t, logs.All())
	require.Contains(t, logs.All()[0].ContextMap()["error"], "unknown authority")
}

// While etcd has authentication disabled, a worker does not register and logs the reason: any holder of a
// certificate could impersonate any other. It registers once authentication is enabled. A worker that may
// provision itself enables it.
func TestRegistration_WaitsForAuthentication(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartGuarded(t, t.TempDir(), "a")
	root := etcd.Client()
	_, err := root.AuthDisable(t.Context())
	require.NoError(t, err)
	core, logs := observer.New(zap.WarnLevel)
	warned := make(chan struct{}, 100)
	log := zap.New(core, zap.Hooks(func(zapcore.Entry) error { warned <- struct{}{}; return nil }))
	registered := make(chan error, 1)
	go func() {
		reg, err := etcdregistry.New(etcd.ClientAs("worker/a"), log, etcdregistry.Config{}).Register(t.Context(), registrytest.NewInstance("a", "1"))
		if err == nil {
			err = reg.Close(t.Context())
		}
		registered <- err
	}()
	<-warned
	require.Contains(t, logs.All()[0].ContextMap()["error"], "anyone with a certificate may do everything there")
	require.Contains(t, logs.All()[0].ContextMap()["error"], "troupe provision etcd")
	there, err := root.Get(t.Context(), "/troupe/v1/reg/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, there.Kvs)
	_, err = root.AuthEnable(t.Context())
	require.NoError(t, err)
	require.NoError(t, <-registered)

	_, err = root.AuthDisable(t.Context())
	require.NoError(t, err)
	dev := etcdregistry.New(etcd.ClientAs("worker/b"), zap.NewNop(), etcdregistry.Config{OnDenied: func(ctx context.Context) error {
		_, err := etcdauth.Provision(ctx, etcd.Client(), []string{"b"})
		return err
	}})
	registrytest.Register(t, dev, registrytest.NewInstance("b", "1"))
	require.False(t, etcdtest.MayWrite(t, etcd.ClientAs("worker/b"), "/troupe/v1/reg/a/1"), "etcd asks")
}
