package worker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/internal/registry"
)

// fakeRegistration is a registration whose lease a test sets.
type fakeRegistration struct {
	registry.Registration

	mu      sync.Mutex
	lease   lifecycle.Lease
	changed chan struct{}
}

func (f *fakeRegistration) Lease() (lifecycle.Lease, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease, f.changed
}

func (f *fakeRegistration) set(l lifecycle.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.lease, f.changed = l, make(chan struct{})
}

// A registration that stays lost for longer than its grace ends the instance. One that is renewed in time, or whose
// registry does not answer, does not.
//
// Req: LC-39
func TestWatchLease_EndsAnInstanceThatCannotRegisterAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		k := newRegistrationKeeper(zap.NewNop(), nil, lifecycle.New(lifecycle.Config{}), probe.NewBoard(conditionRegistry), registry.Instance{})
		k.onLost = func() { lost++ }
		r := &fakeRegistration{lease: lifecycle.LeaseOK, changed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { k.watchLease(ctx, r) })
		for _, step := range []struct {
			lease lifecycle.Lease
			after time.Duration
			lost  int
		}{
			{lifecycle.LeaseUnknown, time.Hour, 0},
			{lifecycle.LeaseExpired, defaultLeaseGrace - time.Second, 0},
			{lifecycle.LeaseOK, time.Hour, 0},
			{lifecycle.LeaseExpired, defaultLeaseGrace - time.Second, 0},
			{lifecycle.LeaseExpired, 2 * time.Second, 1},
		} {
			r.set(step.lease)
			time.Sleep(step.after)
			synctest.Wait()
			require.Equal(t, step.lost, lost, "%s for %s", step.lease, step.after)
		}
		r.set(lifecycle.LeaseOK)
		synctest.Wait()
		r.set(lifecycle.LeaseExpired)
		synctest.Wait()
		cancel()
		watching.Wait()
		time.Sleep(time.Hour)
		require.Equal(t, 1, lost, "nothing happens once the worker no longer watches")
	})
}
