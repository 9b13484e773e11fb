package etcdregistry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// expiryLag is the longest expected delay between the end of a lease's TTL and its removal by etcd.
const expiryLag = 2 * time.Second

// renewUntilDone keeps the instance registered until ctx ends: it renews the lease, and registers again when the
// registration is lost.
func (g *registration) renewUntilDone(ctx context.Context) {
	for {
		g.keepLeaseAlive(ctx)
		if g.registerWithRetry(ctx, "registry.keep") != nil {
			return // ctx has ended
		}
	}
}

// keepLeaseAlive renews the lease. It returns when the lease cannot be renewed, the key was deleted, a recheck was
// requested, or ctx ended. It needs no lock, because only the keeper changes the fields that it reads.
func (g *registration) keepLeaseAlive(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, err := g.registry.client.KeepAlive(ctx, g.lease)
	if err != nil {
		g.log.Warn("the lease cannot be renewed; trying to register again", zap.Error(err))
		return
	}
	// Watch blocks until etcd confirms the watch. It runs in a goroutine, because with an unreachable etcd it
	// would hide here that the lease has expired.
	watching := make(chan clientv3.WatchChan, 1)
	go func() {
		watching <- g.registry.client.Watch(ctx, g.path, clientv3.WithFilterPut(), clientv3.WithRev(g.confirmedRevision+1))
	}()
	var deleted clientv3.WatchChan
	for {
		select {
		case _, alive := <-answers: // the channel must be drained
			if !alive {
				return
			}
		case deleted = <-watching:
		case <-deleted:
			return
		case <-g.recheck:
			return
		}
	}
}

func (g *registration) requestRecheck() {
	select {
	case g.recheck <- struct{}{}:
	default: // a recheck is already requested
	}
}

// registerWithRetry calls ensureRegistered until it succeeds. On the first registration, an existing instance with
// the same name is an error only after it has outlived a TTL. Before that it may be the crashed predecessor of
// this instance. Later registrations wait until the name is free.
func (g *registration) registerWithRetry(ctx context.Context, op string) error {
	first := g.createRevision == 0
	tries := 0
	var free time.Time // time at which the lease of a crashed predecessor has expired
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		last = g.ensureRegistered(ctx, op)
		if g.registry.onDenied != nil && failure.Is(last, failure.PolicySecurity) {
			if err := g.registry.onDenied(ctx); err != nil {
				return struct{}{}, err
			}
			last = g.ensureRegistered(ctx, op)
		}
		if !first {
			g.updateFromResult(last)
		}
		if first && failure.Is(last, failure.AgentState) {
			if free.IsZero() {
				free = time.Now().Add(time.Duration(g.registry.ttl)*time.Second + expiryLag)
			}
			if time.Now().After(free) {
				return struct{}{}, backoff.Permanent(last)
			}
		}
		return struct{}{}, last
	}, backoff.WithBackOff(newBackoff()), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, _ time.Duration) {
		if tries++; tries&(tries-1) == 0 { // 1, 2, 4, 8, …
			g.log.Warn("not registered yet; still trying", zap.Int("tries", tries), zap.Error(err))
		}
	}))
	if errors.Is(err, context.DeadlineExceeded) {
		return last // more informative than the deadline
	}
	return err
}

// ensureRegistered makes sure that the lease exists and that the key is stored under it with the latest state. It
// is safe to repeat after any error.
func (g *registration) ensureRegistered(ctx context.Context, op string) error {
	if err := g.sem.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer g.sem.Release(1)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := g.registry.checkAuthEnabled(call, op); err != nil {
		return err
	}
	if err := g.ensureLease(call); err != nil {
		return g.registry.callError(ctx, op, err)
	}
	value, err := instancewire.MarshalInstance(g.instance)
	if err != nil {
		return backoff.Permanent(err)
	}
	put := clientv3.OpPut(g.path, value, clientv3.WithLease(g.lease))
	ours := clientv3.Compare(clientv3.LeaseValue(g.path), "=", g.lease)
	done, err := g.registry.client.Txn(call).
		If(clientv3.Compare(clientv3.CreateRevision(g.path), "=", 0)).
		Then(put, clientv3.OpGet(g.path)).
		Else(clientv3.OpTxn([]clientv3.Cmp{ours}, []clientv3.Op{put}, nil), clientv3.OpGet(g.path)).
		Commit()
	if err != nil {
		return g.registry.callError(ctx, op, err)
	}
	stored := done.Responses[1].GetResponseRange().Kvs[0]
	if clientv3.LeaseID(stored.Lease) != g.lease {
		return failure.Newf(failure.AgentState, op,
			"instance %q of agent %q is registered already: give this one another id, or end the other",
			g.instance.ID, g.instance.Agent)
	}
	g.confirmedRevision = done.Header.Revision
	if stored.CreateRevision != g.createRevision {
		g.createRevision = stored.CreateRevision
		g.log.Info("registered", zap.String("address", g.instance.Address),
			zap.String("state", string(g.instance.State)), zap.Int64("incarnation", g.createRevision))
	}
	return nil
}

// ensureLease creates a lease unless the current one still exists.
func (g *registration) ensureLease(ctx context.Context) error {
	if g.lease != clientv3.NoLease {
		left, err := g.registry.client.TimeToLive(ctx, g.lease)
		switch {
		case err == nil && left.TTL > 0:
			return nil
		case err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return err
		}
		if g.createRevision != 0 { // otherwise the lease expired while waiting for the name
			g.set(lifecycle.LeaseExpired)
			g.log.Warn("the lease has expired; registering again")
		}
		g.lease = clientv3.NoLease
	}
	granted, err := g.registry.client.Grant(ctx, g.registry.ttl)
	if err != nil {
		return fmt.Errorf("grant a lease: %w", err)
	}
	g.lease = granted.ID
	return nil
}
