package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/services/standalone/store"
)

// etcdClientAs returns a client whose certificate has the given common name.
func etcdClientAs(t *testing.T, ca *identity.CA, e *store.Etcd, name string) *clientv3.Client {
	t.Helper()
	creds, err := ca.ExternalUserCredentials(name)
	require.NoError(t, err)
	client, err := etcdregistry.DialWith(creds, e.Endpoints(), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// If existing data have no users yet, the next start creates them.
func TestEtcd_AddsUsersToExistingData(t *testing.T) {
	dir := t.TempDir()
	before, err := store.NewEtcd(store.EtcdConfig{DataDir: dir, Log: zap.NewNop()})
	require.NoError(t, err)
	stop, _ := startPart(t, before.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = etcdClient(t, before).Put(ctx, "/troupe/v1/store/redis", "v")
	require.NoError(t, err)
	stop()

	ca, err := identity.OpenCA(t.TempDir())
	require.NoError(t, err)
	core, logs := observer.New(zapcore.DebugLevel)
	for range 2 {
		e, err := store.NewEtcd(store.EtcdConfig{DataDir: dir, Log: zap.New(core), CA: ca, Agents: []string{"a"}})
		require.NoError(t, err)
		began := time.Now()
		stop, _ = startPart(t, e.Run)
		t.Log("it took", time.Since(began))
		got, err := etcdClientAs(t, ca, e, "memory").Get(ctx, "/troupe/v1/store/redis")
		require.NoError(t, err)
		require.Equal(t, "v", string(got.Kvs[0].Value))
		_, err = etcdClientAs(t, ca, e, "worker/a").Get(ctx, "/troupe/v1/store/redis")
		require.ErrorContains(t, err, "permission denied")
		stop()
	}
	require.Empty(t, logs.All())
}
