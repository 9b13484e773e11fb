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

// Register implements registry.Registrar. While etcd is away, or lets everybody with a
// certificate write, it waits, and logs so at a growing interval. It also waits for the place of an instance that crashed, for as long
// as a lease outlives its process; a place that is not free then is taken. When a
// registration is lost later, because the lease ran out or the key was deleted, it is made
// anew, with a higher incarnation and the state asked for last;
// while etcd does not answer it counts as registered (guarantees F9, F11).
func (r *Registry) Register(ctx context.Context, in registry.Instance) (registry.Registration, error) {
	const op = "registry.Register"
	if err := in.Check(); err != nil {
		return nil, failure.New(failure.UserInvalidInput, op, err.Error())
	}
	g := &registration{
		leaseFact: leaseFact{lease: lifecycle.LeaseOK, changed: make(chan struct{})},
		registry:  r,
		log:       r.log.With(zap.String("agent", in.Agent), zap.String("instance", in.ID)),
		path:      r.path(in.Key()),
		instance:  in,
		turn:      semaphore.NewWeighted(1),
		doubt:     make(chan struct{}, 1),
	}
	keeping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err := g.persist(ctx, op); err != nil {
		if revokeErr := g.revoke(keeping); revokeErr != nil {
			g.log.Debug("the lease is left to run out", zap.Error(revokeErr))
		}
		cancel()
		return nil, err
	}
	var kept sync.WaitGroup
	kept.Go(func() { g.keep(keeping) })
	g.stop = func() { cancel(); kept.Wait() }
	return g, nil
}

// registration implements registry.Registration. Its keeper is the goroutine that keeps
// the lease alive and makes the registration anew once it is lost.
type registration struct {
	leaseFact
	registry *Registry
	log      *zap.Logger
	path     string
	stop     func()        // ends the keeper and waits for it
	doubt    chan struct{} // asks the keeper to look whether the registration stands

	turn     *semaphore.Weighted // of 1: who holds it may use what follows, and write the key
	instance registry.Instance   // with the state asked for last
	lease    clientv3.LeaseID    // NoLease when there is none
	created  int64               // create revision of the key
	enrolled int64               // revision at which the key was there
	closed   bool
}

// SetState implements registry.Registration. After an error the state is written as soon
// as the registration can be, unless another one is asked for in the meantime.
func (g *registration) SetState(ctx context.Context, s lifecycle.State) error {
	const op = "registry.SetState"
	if err := g.turn.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer g.turn.Release(1)
	if g.closed {
		return g.lost(op)
	}
	g.instance.State = s
	value, err := instancewire.MarshalInstance(g.instance)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done, err := g.registry.client.Txn(call).
		If(clientv3.Compare(clientv3.CreateRevision(g.path), "=", g.created)).
		Then(clientv3.OpPut(g.path, value, clientv3.WithLease(g.lease))).
		Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && !done.Succeeded:
		g.askKeeper()
		return g.lost(op)
	case err != nil:
		g.askKeeper()
		return g.registry.away(ctx, op, err)
	}
	return nil
}

// Close implements registry.Registration. It takes 3 s at most.
func (g *registration) Close(ctx context.Context) error {
	const op = "registry.Close"
	g.stop()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := g.turn.Acquire(call, 1); err != nil {
		return g.registry.away(ctx, op, err)
	}
	defer g.turn.Release(1)
	g.closed = true
	if err := g.revoke(call); err != nil {
		return g.registry.away(ctx, op, err)
	}
	return nil
}

// revoke gives the lease back, and with it the key. Without an answer of etcd the lease
// runs out by itself.
func (g *registration) revoke(ctx context.Context) error {
	if g.lease == clientv3.NoLease {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := g.registry.client.Revoke(ctx, g.lease)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	g.lease = clientv3.NoLease
	return nil
}

func (g *registration) lost(op string) error {
	return failure.Newf(failure.AgentState, op,
		"instance %q of agent %q is no longer registered as this one", g.instance.ID, g.instance.Agent)
}
