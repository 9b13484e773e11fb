// Package etcdtest runs a real etcd inside the test. It can be stopped and started again with the same data and
// address.
package etcdtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/services/standalone/store"
	"github.com/troupe-dev/troupe/test/loopback"
)

const waitTimeout = 30 * time.Second

// Etcd is a real etcd with one member. Its methods must be called from the goroutine of the test, and fail the
// test on errors.
type Etcd struct {
	t      testing.TB
	ca     *identity.CA // nil disables client authentication
	dir    string
	server *store.Etcd
	cancel context.CancelFunc // nil while it is stopped
	done   chan error
}

// Start starts an empty etcd in plain text without authentication. It stops when the test ends.
func Start(t testing.TB) *Etcd {
	t.Helper()
	return start(t, nil, nil)
}

// StartGuarded starts an etcd as in production. It requires client certificates of the CA in the folder, and has
// the users and roles of a mesh with the given agents.
func StartGuarded(t testing.TB, devCA string, agents ...string) *Etcd {
	t.Helper()
	ca, err := identity.OpenCA(devCA)
	require.NoError(t, err)
	return start(t, ca, agents)
}

func start(t testing.TB, ca *identity.CA, agents []string) *Etcd {
	t.Helper()
	e := &Etcd{t: t, dir: t.TempDir(), ca: ca}
	var err error
	e.server, err = store.NewEtcd(store.EtcdConfig{
		DataDir: e.dir, Log: zap.NewNop(), CA: ca, Agents: agents,
		Client: loopback.Address(t), Peer: loopback.Address(t), // no other server gets these addresses while etcd is stopped
	})
	require.NoError(t, err)
	require.NoError(t, e.start(), "etcd does not start")
	t.Cleanup(e.Stop)
	return e
}

// Endpoints returns the addresses of etcd, which never change: host:port, or https://host:port if it is guarded.
func (e *Etcd) Endpoints() []string { return e.server.Endpoints() }

// DataDir returns the data folder of etcd.
func (e *Etcd) DataDir() string { return e.dir }

// Start starts etcd again after Stop, with the same data and address.
func (e *Etcd) Start() {
	e.t.Helper()
	if err := e.start(); err != nil {
		require.FailNow(e.t, "etcd does not start", "%v", err)
	}
}

func (e *Etcd) start() error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.t.Context()))
	e.cancel, e.done = cancel, make(chan error, 1)
	ready := make(chan struct{})
	go func() { e.done <- e.server.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
		return nil
	case err := <-e.done:
		e.cancel = nil
		cancel()
		return err
	}
}

// Stop stops etcd and breaks its connections. A second call does nothing.
func (e *Etcd) Stop() {
	e.t.Helper()
	if e.cancel == nil {
		return
	}
	e.cancel()
	e.cancel = nil
	require.NoError(e.t, <-e.done)
}

// Client returns a client with all rights. The client is closed when the test ends.
func (e *Etcd) Client() *clientv3.Client {
	e.t.Helper()
	return e.ClientAs(etcdauth.Root)
}

// ClientAs returns a client that connects as the given etcd user, such as worker/research.
func (e *Etcd) ClientAs(user string) *clientv3.Client {
	e.t.Helper()
	creds := insecure.NewCredentials()
	if e.ca != nil {
		var err error
		creds, err = e.ca.ExternalUserCredentials(user)
		require.NoError(e.t, err)
	}
	return e.ClientWith(creds)
}

// ClientWith returns a client with the given credentials.
func (e *Etcd) ClientWith(creds credentials.TransportCredentials) *clientv3.Client {
	e.t.Helper()
	client, err := etcdregistry.DialWith(creds, e.Endpoints(), zap.NewNop())
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, client.Close()) })
	return client
}

// RenewCertificate gives a guarded etcd a new certificate of the CA in the folder and makes it trust that CA. Both
// take effect at its next start.
func (e *Etcd) RenewCertificate(devCA string) {
	e.t.Helper()
	next, err := identity.OpenCA(devCA)
	require.NoError(e.t, err)
	*e.ca = *next
}

// Compact removes all history before the current revision.
func (e *Etcd) Compact() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), waitTimeout)
	defer cancel()
	client := e.Client()
	now, err := client.Get(ctx, "any", clientv3.WithCountOnly())
	require.NoError(e.t, err)
	_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(e.t, err)
}
