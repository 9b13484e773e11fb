package etcdregistry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/parallel"
)

func TestMain(m *testing.M) {
	parallel.SetMinimum(12)
	goleak.VerifyTestMain(m)
}

// shortTTL is about the shortest TTL that etcd accepts.
var shortTTL = etcdregistry.Config{TTL: 2 * time.Second}

func TestRegistry_Suite(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	opened := 0
	registrytest.Run(t, func(*testing.T) registry.Registry {
		opened++
		return etcdregistry.New(client, zap.NewNop(), etcdregistry.Config{
			Prefix: fmt.Sprintf("/suite/%d", opened), DesiredPrefix: fmt.Sprintf("/wanted/%d", opened), TTL: shortTTL.TTL,
		})
	})
}

func TestRegistry_StoresReadableJSONUnderALease(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	registrytest.Register(t, etcdregistry.New(client, zap.NewNop(), etcdregistry.Config{}), registrytest.NewInstance("research", "a"))

	got, err := client.Get(t.Context(), "/troupe/v1/reg/research/a")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.Contains(t, strings.ReplaceAll(string(got.Kvs[0].Value), " ", ""), `"state":"INSTANCE_STATE_INITIALIZING"`)
	lease, err := client.TimeToLive(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease))
	require.NoError(t, err)
	require.EqualValues(t, etcdregistry.DefaultTTL/time.Second, lease.GrantedTTL)
}

// Any holder of a worker's certificate can write anything to the keys of its agent. Readers ignore an instance
// that is invalid.
// Req: S9
func TestWatch_IgnoresInvalidInstances(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	core, logs := observer.New(zapcore.WarnLevel)
	o := registrytest.Observe(t, etcdregistry.New(client, zap.New(core), etcdregistry.Config{}))
	require.Empty(t, o.NextList())
	granted, err := client.Grant(t.Context(), 60)
	require.NoError(t, err)
	put := func(key, value string, opts ...clientv3.OpOption) {
		t.Helper()
		_, err := client.Put(t.Context(), "/troupe/v1/reg/"+key, value, opts...)
		require.NoError(t, err)
	}
	leased := clientv3.WithLease(granted.ID)
	good, err := instancewire.MarshalInstance(registrytest.NewInstance("research", "a"))
	require.NoError(t, err)
	instead := func(old, by string) string {
		require.Contains(t, strings.ReplaceAll(good, ": ", ":"), old)
		return strings.ReplaceAll(strings.ReplaceAll(good, ": ", ":"), old, by)
	}
	bad := []string{
		"{", "{}", "null", instead(`"capacity":16`, `"capacity":-79`), instead(`"capacity":16`, `"capacity":2147483647`),
		instead("127.0.0.1:7402", "127.0.0.1"), instead("127.0.0.1:7402", ":7402"), instead("1.2.0", strings.Repeat("v", 2000)),
		instead("1.2.0", strings.Repeat("v", 70_000)), instead(`"capacity":16`, `"capacity":16,"capabilities":["not one"]`),
		instead(`"capacity":16`, `"capacity":16,"tools":[{}]`),
	}
	for _, value := range bad {
		put("research/bad", value, leased)
	}
	for _, key := range []string{
		"research/", "research/a/b", "research/\xff\xfe", "research/\x1b[31m", "research/" + strings.Repeat("i", 129), "/a",
		"Research/a",
	} {
		put(key, good, leased)
	}
	put("research/stays", good)
	put("research/a", good, leased)
	require.Equal(t, "a", o.NextPut().ID, "the deletion of an unknown instance is not reported")
	require.Len(t, logs.FilterMessage("a key in the registry holds no instance").All(), len(bad)+8)
	put("research/a", "{}", leased)
	require.Equal(t, registry.Key{Agent: "research", ID: "a"}, o.NextDelete())
	require.Empty(t, registrytest.Observe(t, etcdregistry.New(client, zap.NewNop(), etcdregistry.Config{})).NextList())
}

// A Watcher returns a description as one line, even if the stored one has more.
func TestWatch_ReturnsADescriptionAsOneLine(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	granted, err := client.Grant(t.Context(), 60)
	require.NoError(t, err)
	value := `{"address":"127.0.0.1:1","capacity":1,"description":"Finds\u001b\n facts.` + strings.Repeat("x", 1<<15) + `"}`
	_, err = client.Put(t.Context(), "/troupe/v1/reg/research/a", value, clientv3.WithLease(granted.ID))
	require.NoError(t, err)
	o := registrytest.Observe(t, etcdregistry.New(client, zap.NewNop(), etcdregistry.Config{}))
	list := o.NextList()
	require.Len(t, list, 1)
	require.Len(t, list[0].Description, registry.MaxTextBytes)
	require.True(t, strings.HasPrefix(list[0].Description, "Finds facts.x"))
}

func TestRegister_WaitsForEtcdAndLogsTheWait(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	etcd.Stop()
	waiting := make(chan struct{}, 1)
	core, logs := observer.New(zapcore.WarnLevel)
	log := zap.New(core, zap.Hooks(func(zapcore.Entry) error {
		select {
		case waiting <- struct{}{}:
		default:
		}
		return nil
	}))
	r := etcdregistry.New(etcd.Client(), log, etcdregistry.Config{})

	registered := make(chan error, 1)
	go func() {
		reg, err := r.Register(t.Context(), registrytest.NewInstance("research", "a"))
		if err == nil {
			err = reg.Close(context.WithoutCancel(t.Context()))
		}
		registered <- err
	}()
	<-waiting
	etcd.Start()
	require.NoError(t, <-registered)
	waited := logs.FilterMessage("not registered yet; still trying").All()
	require.NotEmpty(t, waited)
	require.Contains(t, waited[0].ContextMap()["error"], etcd.Endpoints()[0])
}

func TestRegister_TimeoutErrorNamesEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	etcd.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{}).
		Register(ctx, registrytest.NewInstance("research", "a"))
	require.True(t, failure.Is(err, failure.SystemNetwork, failure.SystemTimeout), "got %v", err)
	require.ErrorContains(t, err, etcd.Endpoints()[0])
}

func TestRegistration_SurvivesARestartOfEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	r := etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{})
	o := registrytest.Observe(t, etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{}))
	require.Empty(t, o.NextList())
	reg := registrytest.Register(t, r, registrytest.NewInstance("research", "a"))
	before := o.NextPut()

	etcd.Stop()
	away := o.Next()
	require.True(t, failure.Is(away.Unreachable, failure.SystemNetwork, failure.SystemTimeout), "want Away, got %+v", away)
	require.Empty(t, cmp.Diff(map[registry.Key]registry.Instance{before.Key(): before}, o.Known))
	etcd.Start()
	require.Empty(t, cmp.Diff([]registry.Instance{before}, o.NextList()), "once away, then the list")

	require.NoError(t, reg.SetState(t.Context(), lifecycle.Ready))
	o.Until(func() bool { return o.Known[before.Key()].State == lifecycle.Ready })
}

func TestRegistration_WritesTheStateAfterAnOutage(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	r := etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{})
	in := registrytest.NewInstance("research", "a")
	reg := registrytest.Register(t, r, in)

	etcd.Stop()
	err := reg.SetState(t.Context(), lifecycle.Ready)
	require.True(t, failure.Is(err, failure.SystemNetwork, failure.SystemTimeout), "got %v", err)
	etcd.Start()
	o := registrytest.Observe(t, r)
	o.Until(func() bool { return o.Known[in.Key()].State == lifecycle.Ready })
}

func TestRegistration_IsRecreatedWhenItsLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	r := etcdregistry.New(client, zap.NewNop(), etcdregistry.Config{})
	o := registrytest.Observe(t, r)
	require.Empty(t, o.NextList())
	reg := registrytest.Register(t, r, registrytest.NewInstance("research", "a"))
	first := o.NextPut()
	require.NoError(t, reg.SetState(t.Context(), lifecycle.Ready))
	require.Equal(t, lifecycle.Ready, o.NextPut().State)

	stored, err := client.Get(t.Context(), "/troupe/v1/reg/research/a")
	require.NoError(t, err)
	_, err = client.Revoke(t.Context(), clientv3.LeaseID(stored.Kvs[0].Lease))
	require.NoError(t, err)
	require.Equal(t, first.Key(), o.NextDelete())
	again := o.NextPut()
	require.Equal(t, lifecycle.Ready, again.State, "with the state requested last")
	require.Greater(t, again.Incarnation, first.Incarnation)
	require.NoError(t, reg.SetState(t.Context(), lifecycle.Paused))
	require.Equal(t, lifecycle.Paused, o.NextPut().State)
}

func TestRegistration_IsRecreatedWhenItsKeyIsDeleted(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).Client()
	r := etcdregistry.New(client, zap.NewNop(), etcdregistry.Config{})
	o := registrytest.Observe(t, r)
	require.Empty(t, o.NextList())
	registrytest.Register(t, r, registrytest.NewInstance("research", "a"))
	first := o.NextPut()
	_, err := client.Delete(t.Context(), "/troupe/v1/reg/research/a")
	require.NoError(t, err)
	require.Equal(t, first.Key(), o.NextDelete())
	require.Greater(t, o.NextPut().Incarnation, first.Incarnation)
}

func TestRegistration_ExpiresWhenItsProcessDies(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	o := registrytest.Observe(t, etcdregistry.New(etcd.Client(), zap.NewNop(), shortTTL))
	require.Empty(t, o.NextList())

	doomed, err := etcdregistry.Dial(etcd.Endpoints(), zap.NewNop())
	require.NoError(t, err)
	in := registrytest.NewInstance("research", "a")
	registrytest.Register(t, etcdregistry.New(doomed, zap.NewNop(), shortTTL), in)
	o.NextPut()
	require.NoError(t, doomed.Close())                // the lease is not revoked, but the keeper may still write once
	o.Until(func() bool { return len(o.Known) == 0 }) // the lease has expired
}

func TestRegister_ReplacesACrashedInstance(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	doomed, err := etcdregistry.Dial(etcd.Endpoints(), zap.NewNop())
	require.NoError(t, err)
	in := registrytest.NewInstance("research", "a")
	registrytest.Register(t, etcdregistry.New(doomed, zap.NewNop(), shortTTL), in)
	require.NoError(t, doomed.Close())
	registrytest.Register(t, etcdregistry.New(etcd.Client(), zap.NewNop(), shortTTL), in)
}

func TestRegistration_OutlivesItsTTLWhileItsProcessRuns(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	client := etcd.Client()
	registrytest.Register(t, etcdregistry.New(client, zap.NewNop(), shortTTL), registrytest.NewInstance("research", "a"))
	doomed, err := etcdregistry.Dial(etcd.Endpoints(), zap.NewNop())
	require.NoError(t, err)

	// The test measures time by two instances that die one after the other. Both outlive a TTL.
	o := registrytest.Observe(t, etcdregistry.New(client, zap.NewNop(), shortTTL))
	o.NextList()
	for _, id := range []string{"b", "c"} {
		registrytest.Register(t, etcdregistry.New(doomed, zap.NewNop(), shortTTL), registrytest.NewInstance("research", id))
		o.NextPut()
		require.NoError(t, doomed.Close()) // the keeper may still write once
		o.Until(func() bool { _, there := o.Known[registry.Key{Agent: "research", ID: id}]; return !there })
		doomed, err = etcdregistry.Dial(etcd.Endpoints(), zap.NewNop())
		require.NoError(t, err)
	}
	require.NoError(t, doomed.Close())
	require.Contains(t, o.Known, registry.Key{Agent: "research", ID: "a"})
}

func TestDial_RequiresAnAddress(t *testing.T) {
	t.Parallel()
	_, err := etcdregistry.Dial(nil, zap.NewNop())
	require.True(t, failure.Is(err, failure.UserInvalidInput), "got %v", err)
}
