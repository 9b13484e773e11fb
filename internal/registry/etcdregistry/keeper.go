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
func (r *registration) renewUntilDone(ctx context.Context) {
	for {
		r.keepLeaseAlive(ctx)
		if r.registerWithRetry(ctx, "registry.keep") != nil {
			return // ctx has ended
		}
	}
}

// keepLeaseAlive renews the lease. It returns when the lease cannot be renewed, the key was deleted, a recheck was
// requested, or ctx ended. It needs no lock, because only the keeper changes the fields that it reads.
func (r *registration) keepLeaseAlive(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, err := r.registry.client.KeepAlive(ctx, r.lease)
	if err != nil {
		r.log.Warn("the lease cannot be renewed; trying to register again", zap.Error(err))
		return
	}
	// Watch blocks until etcd confirms the watch. It runs in a goroutine, because with an unreachable etcd it
	// would hide here that the lease has expired.
	watching := make(chan clientv3.WatchChan, 1)
	go func() {
		watching <- r.registry.client.Watch(ctx, r.path, clientv3.WithFilterPut(), clientv3.WithRev(r.confirmedRevision+1))
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
		case <-r.recheck:
			return
		}
	}
}

func (r *registration) requestRecheck() {
	select {
	case r.recheck <- struct{}{}:
	default: // a recheck is already requested
	}
}

// registerWithRetry calls ensureRegistered until it succeeds. On the first registration, an existing instance with
// the same name is an error only after it has outlived a TTL. Before that it may be the crashed predecessor of
// this instance. Later registrations wait until the name is free.
func (r *registration) registerWithRetry(ctx context.Context, op string) error {
	first := r.createRevision == 0
	tries := 0
	var free time.Time // time at which the lease of a crashed predecessor has expired
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		last = r.ensureRegistered(ctx, op)
		if r.registry.onDenied != nil && failure.Is(last, failure.PolicySecurity) {
			if err := r.registry.onDenied(ctx); err != nil {
				return struct{}{}, err
			}
			last = r.ensureRegistered(ctx, op)
		}
		if !first {
			r.updateFromResult(last)
		}
		if first && failure.Is(last, failure.AgentState) {
			if free.IsZero() {
				free = time.Now().Add(time.Duration(r.registry.ttlSeconds)*time.Second + expiryLag)
			}
			if time.Now().After(free) {
				return struct{}{}, backoff.Permanent(last)
			}
		}
		return struct{}{}, last
	}, backoff.WithBackOff(newBackoff()), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, _ time.Duration) {
		if tries++; tries&(tries-1) == 0 { // 1, 2, 4, 8, …
			r.log.Warn("not registered yet; still trying", zap.Int("tries", tries), zap.Error(err))
		}
	}))
	if errors.Is(err, context.DeadlineExceeded) {
		return last // more informative than the deadline
	}
	return err
}

// ensureRegistered makes sure that the lease exists and that the key is stored under it with the latest state. It
// is safe to repeat after any error.
func (r *registration) ensureRegistered(ctx context.Context, op string) error {
	if err := r.sem.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer r.sem.Release(1)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.registry.checkAuthEnabled(call, op); err != nil {
		return err
	}
	if err := r.ensureLease(call); err != nil {
		return r.registry.callError(ctx, op, err)
	}
	value, err := instancewire.MarshalInstance(r.instance)
	if err != nil {
		return backoff.Permanent(err)
	}
	put := clientv3.OpPut(r.path, value, clientv3.WithLease(r.lease))
	ours := clientv3.Compare(clientv3.LeaseValue(r.path), "=", r.lease)
	done, err := r.registry.client.Txn(call).
		If(clientv3.Compare(clientv3.CreateRevision(r.path), "=", 0)).
		Then(put, clientv3.OpGet(r.path)).
		Else(clientv3.OpTxn([]clientv3.Cmp{ours}, []clientv3.Op{put}, nil), clientv3.OpGet(r.path)).
		Commit()
	if err != nil {
		return r.registry.callError(ctx, op, err)
	}
	stored := done.Responses[1].GetResponseRange().Kvs[0]
	if clientv3.LeaseID(stored.Lease) != r.lease {
		return failure.Newf(failure.AgentState, op,
			"instance %q of agent %q is registered already: give this one another id, or end the other",
			r.instance.ID, r.instance.Agent)
	}
	r.confirmedRevision = done.Header.Revision
	if stored.CreateRevision != r.createRevision {
		r.createRevision = stored.CreateRevision
		r.log.Info("registered", zap.String("address", r.instance.Address),
			zap.String("state", string(r.instance.State)), zap.Int64("incarnation", r.createRevision))
	}
	return nil
}

// ensureLease creates a lease unless the current one still exists.
func (r *registration) ensureLease(ctx context.Context) error {
	if r.lease != clientv3.NoLease {
		left, err := r.registry.client.TimeToLive(ctx, r.lease)
		switch {
		case err == nil && left.TTL > 0:
			return nil
		case err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return err
		}
		if r.createRevision != 0 { // otherwise the lease expired while waiting for the name
			r.set(lifecycle.LeaseExpired)
			r.log.Warn("the lease has expired; registering again")
		}
		r.lease = clientv3.NoLease
	}
	granted, err := r.registry.client.Grant(ctx, r.registry.ttlSeconds)
	if err != nil {
		return fmt.Errorf("grant a lease: %w", err)
	}
	r.lease = granted.ID
	return nil
}
