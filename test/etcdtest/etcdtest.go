// Package etcdtest runs a real etcd inside the test, that can be stopped and started again
// with its data and its address.
package etcdtest

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/registry/etcdregistry"
	"github.com/troupe-dev/troupe/services/standalone/store"
)

const patience = 30 * time.Second

// Etcd is a real etcd of one member. Its methods fail the test when they cannot do what
// they say, and are for the test's own goroutine.
type Etcd struct {
	t      testing.TB
	dir    string
	server *store.Etcd
	cancel context.CancelFunc // nil while it is stopped
	ended  chan error
}

// Start starts an etcd with no data; it is stopped when the test ends.
func Start(t testing.TB) *Etcd {
	t.Helper()
	var err error
	for range 5 {
		e := &Etcd{t: t, dir: t.TempDir()}
		e.server, err = store.NewEtcd(store.EtcdConfig{DataDir: e.dir, Log: zap.NewNop()})
		require.NoError(t, err)
		if err = e.start(); err == nil {
			t.Cleanup(e.Stop)
			return e
		}
		if !errors.Is(err, syscall.EADDRINUSE) { // another process has taken a port that was free when it was chosen
			break
		}
	}
	require.FailNow(t, "etcd does not start", "%v", err)
	return nil
}

// Endpoints are its addresses, host:port; they never change.
func (e *Etcd) Endpoints() []string { return e.server.Endpoints() }

// DataDir is the folder of its data.
func (e *Etcd) DataDir() string { return e.dir }

// Start brings it back after Stop, with its data and at its address.
func (e *Etcd) Start() {
	e.t.Helper()
	if err := e.start(); err != nil {
		require.FailNow(e.t, "etcd does not start", "%v", err)
	}
}

func (e *Etcd) start() error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.t.Context()))
	e.cancel, e.ended = cancel, make(chan error, 1)
	ready := make(chan struct{})
	go func() { e.ended <- e.server.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
		return nil
	case err := <-e.ended:
		e.cancel = nil
		cancel()
		return err
	}
}

// Stop stops it; its connections break. Stopping twice is fine.
func (e *Etcd) Stop() {
	e.t.Helper()
	if e.cancel == nil {
		return
	}
	e.cancel()
	e.cancel = nil
	require.NoError(e.t, <-e.ended)
}

// Client returns a client that is closed when the test ends.
func (e *Etcd) Client() *clientv3.Client {
	e.t.Helper()
	client, err := etcdregistry.Dial(e.Endpoints(), zap.NewNop())
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, client.Close()) })
	return client
}

// Compact drops all history before the present revision.
func (e *Etcd) Compact() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	client := e.Client()
	now, err := client.Get(ctx, "any", clientv3.WithCountOnly())
	require.NoError(e.t, err)
	_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(e.t, err)
}
