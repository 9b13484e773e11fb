package etcdregistry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/etcdtest"
)

func TestStoreRecords_Suite(t *testing.T) {
	t.Parallel()
	registrytest.RunStoreRecords(t, etcdregistry.NewStoreRecords(etcdtest.Start(t).Client(), ""))
}

func TestStoreRecords_AreReadableJSON(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	done, err := etcdregistry.NewStoreRecords(client, "").Swap(t.Context(), "redis", registry.StoreRecord{Generation: 2, Beat: 7, Identity: "a/b"}, 0)
	require.NoError(t, err)
	require.True(t, done)
	got, err := client.Get(t.Context(), "/troupe/v1/store/redis")
	require.NoError(t, err)
	require.JSONEq(t, `{"generation":2,"beat":7,"identity":"a/b"}`, string(got.Kvs[0].Value))
}

func TestStoreRecords_RejectAnInvalidRecord(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	_, err := client.Put(t.Context(), "/troupe/v1/store/redis", "three")
	require.NoError(t, err)
	_, _, err = etcdregistry.NewStoreRecords(client, "").Load(t.Context(), "redis")
	require.ErrorContains(t, err, "/troupe/v1/store/redis of etcd holds no record")
}

func TestStoreRecords_ReportAnUnreachableEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	stores := etcdregistry.NewStoreRecords(etcd.Client(), "")
	etcd.Stop()
	_, _, err := stores.Load(t.Context(), "redis")
	require.Contains(t, []failure.Mode{failure.SystemNetwork, failure.SystemTimeout}, failure.ModeOf(err))
	_, err = stores.Swap(t.Context(), "redis", registry.StoreRecord{}, 0)
	require.Contains(t, []failure.Mode{failure.SystemNetwork, failure.SystemTimeout}, failure.ModeOf(err))
}
