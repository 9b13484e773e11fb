package etcdregistry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/test/etcdtest"
)

// awaitLease waits until the lease has the given status.
func awaitLease(t *testing.T, reg registry.Registration, want lifecycle.Lease) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		lease, changed := reg.Lease()
		if lease == want {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			require.FailNow(t, "waited in vain", "for the lease to be %s; it is %s", want, lease)
		}
	}
}

// While etcd is unreachable, the lease is unknown. It is expired when etcd has given the name to another instance.
func TestRegistration_ReportsItsLease(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	l := newProxy(t, etcd.Endpoints()[0])
	far, err := etcdregistry.Dial([]string{l.listener.Addr().String()}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	near := etcdregistry.New(etcd.Client(), zap.NewNop(), shortTTL)
	o := registrytest.Observe(t, near)
	in := registrytest.NewInstance("research", "a")
	reg := registrytest.Register(t, etcdregistry.New(far, zap.NewNop(), shortTTL), in)
	o.Until(func() bool { return len(o.Known) == 1 })
	first := o.Known[in.Key()].Incarnation
	awaitLease(t, reg, lifecycle.LeaseOK)

	l.Disconnect()
	awaitLease(t, reg, lifecycle.LeaseUnknown)
	o.Until(func() bool { return len(o.Known) == 0 }) // the lease has expired in the meantime
	rival := registrytest.Register(t, near, in)
	l.Restore()
	awaitLease(t, reg, lifecycle.LeaseExpired)
	require.NoError(t, rival.Close(t.Context()))
	awaitLease(t, reg, lifecycle.LeaseOK)
	o.Until(func() bool { return o.Known[in.Key()].Incarnation > first })
}
