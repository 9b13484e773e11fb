package etcdregistry

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Register implements registry.Registrar. While etcd is unreachable, or has authentication disabled, Register
// waits and logs the reason at growing intervals. If another instance has the same name, it waits for as long as a
// lease outlives its process, because that instance may have crashed; then the name counts as taken. A
// registration that is lost later, because its lease expired or its key was deleted, is created again with a
// higher incarnation and the latest state. While etcd is unreachable the instance counts as registered (guarantees
// F9, F11).
func (r *Registry) Register(ctx context.Context, in registry.Instance) (registry.Registration, error) {
	const op = "registry.Register"
	if err := in.Check(); err != nil {
		return nil, failure.New(failure.UserInvalidInput, op, err.Error())
	}
	g := &registration{
		leaseStatus: leaseStatus{lease: lifecycle.LeaseOK, changed: make(chan struct{})},
		registry:    r,
		log:         r.log.With(zap.String("agent", in.Agent), zap.String("instance", in.ID)),
		path:        r.instancePath(in.Key()),
		instance:    in,
		sem:         semaphore.NewWeighted(1),
		recheck:     make(chan struct{}, 1),
	}
	keeping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err := g.registerWithRetry(ctx, op); err != nil {
		if revokeErr := g.revokeLease(keeping); revokeErr != nil {
			g.log.Debug("the lease is left to run out", zap.Error(revokeErr))
		}
		cancel()
		return nil, err
	}
	var kept sync.WaitGroup
	kept.Go(func() { g.renewUntilDone(keeping) })
	g.stop = func() { cancel(); kept.Wait() }
	return g, nil
}

// registration implements registry.Registration. A goroutine, called the keeper, renews the lease and registers
// again after a loss.
type registration struct {
	leaseStatus
	registry *Registry
	log      *zap.Logger
	path     string
	stop     func()        // stops the keeper goroutine and waits for it
	recheck  chan struct{} // tells the keeper to check the registration

	sem               *semaphore.Weighted // mutex with a context; guards the fields below and writes of the key
	instance          registry.Instance   // registered instance, with the latest requested state
	lease             clientv3.LeaseID    // (NoLease if there is none)
	createRevision    int64               // create revision of the key
	confirmedRevision int64               // latest revision at which the key is known to exist
	closed            bool
}

// SetState implements registry.Registration. If writing the state fails, the keeper writes it as soon as it can,
// unless another state is requested first.
func (r *registration) SetState(ctx context.Context, s lifecycle.State) error {
	const op = "registry.SetState"
	if err := r.sem.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer r.sem.Release(1)
	if r.closed {
		return r.newLostError(op)
	}
	r.instance.State = s
	value, err := instancewire.MarshalInstance(r.instance)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done, err := r.registry.client.Txn(call).
		If(clientv3.Compare(clientv3.CreateRevision(r.path), "=", r.createRevision)).
		Then(clientv3.OpPut(r.path, value, clientv3.WithLease(r.lease))).
		Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && !done.Succeeded:
		r.requestRecheck()
		return r.newLostError(op)
	case err != nil:
		r.requestRecheck()
		return r.registry.callError(ctx, op, err)
	}
	return nil
}

// Close implements registry.Registration. It takes at most 3 s.
func (r *registration) Close(ctx context.Context) error {
	const op = "registry.Close"
	r.stop()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.sem.Acquire(call, 1); err != nil {
		return r.registry.callError(ctx, op, err)
	}
	defer r.sem.Release(1)
	r.closed = true
	if err := r.revokeLease(call); err != nil {
		return r.registry.callError(ctx, op, err)
	}
	return nil
}

// revokeLease revokes the lease, which deletes the key. If etcd does not answer, the lease expires by itself.
func (r *registration) revokeLease(ctx context.Context) error {
	if r.lease == clientv3.NoLease {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.registry.client.Revoke(ctx, r.lease)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	r.lease = clientv3.NoLease
	return nil
}

func (r *registration) newLostError(op string) error {
	return failure.Newf(failure.AgentState, op,
		"instance %q of agent %q is no longer registered as this one", r.instance.ID, r.instance.Agent)
}
