package store_test

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

	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/services/standalone/store"
)

func etcdClient(t *testing.T, e *store.Etcd) *clientv3.Client {
	t.Helper()
	client, err := etcdregistry.Dial(e.Endpoints(), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestEtcd_KeepsItsDataOverARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	first, err := store.NewEtcd(store.EtcdConfig{DataDir: dir, Log: zap.NewNop()})
	require.NoError(t, err)
	stop, _ := startPart(t, first.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = etcdClient(t, first).Put(ctx, "k", "v")
	require.NoError(t, err)
	stop()

	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	second, err := store.NewEtcd(store.EtcdConfig{DataDir: dir, Log: zap.NewNop()})
	require.NoError(t, err)
	stop, _ = startPart(t, second.Run)
	defer stop()
	got, err := etcdClient(t, second).Get(ctx, "k")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.Equal(t, "v", string(got.Kvs[0].Value))
}

func TestEtcd_LogsNoErrorsFromStartToStop(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	e, err := store.NewEtcd(store.EtcdConfig{DataDir: t.TempDir(), Log: zap.New(core)})
	require.NoError(t, err)
	stop, _ := startPart(t, e.Run)
	stop()
	require.Empty(t, logs.All())
}

func TestEtcd_RejectsAFolderInUse(t *testing.T) {
	cfg := store.EtcdConfig{DataDir: t.TempDir(), Log: zap.NewNop()}
	first, err := store.NewEtcd(cfg)
	require.NoError(t, err)
	stop, _ := startPart(t, first.Run)
	defer stop()
	second, err := store.NewEtcd(cfg)
	require.NoError(t, err)
	err = second.Run(t.Context(), func() {})
	require.ErrorContains(t, err, "is in use by another process")
}
