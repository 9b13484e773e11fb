package etcdregistry

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/registry"
)

const (
	// beat is how often a watcher asks etcd for a sign of life. A watch itself says nothing
	// when etcd is gone: the client tries for ever.
	beat = 2 * time.Second
	// relist is how often everything is listed again, in case that events were lost
	// (guarantees 5.2.5).
	relist = time.Minute
)

// errRelist is why a watch that works starts over.
var errRelist = errors.New("list again")

// Watch implements registry.Watcher. The Away update comes within about 5 s of the
// outage, once per outage.
func (r *Registry) Watch(ctx context.Context, apply func(registry.Update)) error {
	away := false
	pauses := pace()
	for ctx.Err() == nil {
		err := r.follow(ctx, func(u registry.Update) {
			if away {
				r.log.Info("the registry is back")
			}
			away = false
			pauses.Reset()
			apply(u)
		})
		if ctx.Err() != nil || errors.Is(err, errRelist) || errors.Is(err, rpctypes.ErrCompacted) {
			continue
		}
		if !away {
			away = true
			r.log.Warn("the registry does not answer; what is known stays valid", zap.Error(err))
			apply(registry.Update{Away: r.away(ctx, "registry.Watch", err)})
		}
		pause := time.NewTimer(pauses.NextBackOff())
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	return nil
}

// follow lists what is registered and then tells every change, until something ends it.
func (r *Registry) follow(ctx context.Context, apply func(registry.Update)) error {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	var beating sync.WaitGroup
	beating.Go(func() { cancel(r.pulse(ctx)) })
	defer func() { cancel(nil); beating.Wait() }()

	revision, err := r.list(ctx, apply)
	if err != nil {
		return err
	}
	changes := r.client.Watch(ctx, r.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithProgressNotify())
	again := time.NewTimer(relist)
	defer again.Stop()
	for {
		select {
		case change, ok := <-changes:
			if !ok || change.Err() != nil {
				return cmp.Or(context.Cause(ctx), change.Err(), errors.New("the watch was closed"))
			}
			for _, e := range change.Events {
				if u, ok := r.update(e); ok {
					apply(u)
				}
			}
		case <-again.C:
			return errRelist
		}
	}
}

// list applies all that is registered and returns as of which revision.
func (r *Registry) list(ctx context.Context, apply func(registry.Update)) (int64, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := r.client.Get(call, r.prefix, clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	all := make([]registry.Instance, 0, len(got.Kvs))
	for _, kv := range got.Kvs {
		if in, ok := r.instance(kv.Key, kv.Value, kv.CreateRevision); ok {
			all = append(all, in)
		}
	}
	apply(registry.Update{List: &all})
	return got.Header.Revision, nil
}

// pulse returns once etcd gives no sign of life, or ctx ends.
func (r *Registry) pulse(ctx context.Context) error {
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := r.client.Get(call, r.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		cancel()
		if err != nil {
			return err
		}
	}
}

// update is what a change in etcd means.
func (r *Registry) update(e *clientv3.Event) (registry.Update, bool) {
	if e.Type == clientv3.EventTypeDelete {
		key := r.key(e.Kv.Key)
		return registry.Update{Delete: &key}, true
	}
	in, ok := r.instance(e.Kv.Key, e.Kv.Value, e.Kv.CreateRevision)
	return registry.Update{Put: &in}, ok
}
