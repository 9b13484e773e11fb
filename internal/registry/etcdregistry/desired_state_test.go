package etcdregistry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/etcdtest"
)

func TestDesiredState_IsReadableJSONWithoutALease(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	r := etcdregistry.New(client, zap.NewNop(), etcdregistry.Config{})
	require.NoError(t, r.SetDesired(t.Context(), registrytest.NewDesiredState("research", "a", registry.Pause)))
	got, err := client.Get(t.Context(), "/troupe/v1/desired/research/a")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.JSONEq(t, `{"want":"PAUSE","reason":"a closer look","since":"2026-11-21T10:00:00Z"}`, string(got.Kvs[0].Value))
	require.Zero(t, got.Kvs[0].Lease)
}

func TestDesiredState_FailsWithoutEtcdAndRecovers(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	r := etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{})
	told := make(chan map[registry.Key]registry.DesiredState)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.WatchDesiredStates(t.Context(), func(all map[registry.Key]registry.DesiredState) {
			select {
			case told <- all:
			case <-t.Context().Done():
			}
		})
	}()
	t.Cleanup(func() { <-ended })
	require.Empty(t, <-told)

	etcd.Stop()
	d := registrytest.NewDesiredState("research", "a", registry.Drain)
	for _, err := range []error{r.SetDesired(t.Context(), d), r.RemoveDesired(t.Context(), d.Key)} {
		require.True(t, failure.Is(err, failure.SystemNetwork, failure.SystemTimeout), "got %v", err)
	}
	etcd.Start()
	require.Eventually(t, func() bool { return r.SetDesired(t.Context(), d) == nil }, 30*time.Second, 50*time.Millisecond)
	for all := range told {
		if all[d.Key] == d {
			break
		}
	}
}
