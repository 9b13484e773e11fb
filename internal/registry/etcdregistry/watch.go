package etcdregistry

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
)

const (
	// livenessInterval is the interval of liveness calls to etcd. A watch alone does not notice that etcd is gone: the
	// client retries forever.
	livenessInterval = 2 * time.Second
	// relistInterval is the interval of listing everything again, in case events were lost (guarantees 5.2.5).
	relistInterval = time.Minute
)

// errRelist restarts a working watch.
var errRelist = errors.New("list again")

// feed receives what happens to the keys under a prefix.
type feed struct {
	prefix string
	list   func([]*mvccpb.KeyValue) // all keys; replaces what was known
	change func([]*clientv3.Event)  // changes in order
	away   func(error)              // called once per outage; what was known stays valid
}

// Watch implements registry.Watcher. The Away update comes within about 5 s of the
// outage, once per outage.
func (r *Registry) Watch(ctx context.Context, apply func(registry.Update)) error {
	known := map[registry.Key]bool{}
	return r.watch(ctx, feed{
		prefix: r.prefix,
		list: func(kvs []*mvccpb.KeyValue) {
			all := make([]registry.Instance, 0, len(kvs))
			clear(known)
			for _, kv := range kvs {
				if in, ok := r.instance(kv); ok {
					all, known[in.Key()] = append(all, in), true
				}
			}
			apply(registry.Update{List: &all})
		},
		change: func(events []*clientv3.Event) {
			for _, e := range events {
				if u, ok := r.update(e, known); ok {
					apply(u)
				}
			}
		},
		away: func(err error) { apply(registry.Update{Away: r.away(ctx, "registry.Watch", err)}) },
	})
}

// watch calls f until ctx ends.
func (r *Registry) watch(ctx context.Context, f feed) error {
	away := false
	pauses := newBackoff()
	for ctx.Err() == nil {
		err := r.follow(ctx, f, func() {
			if away {
				r.log.Info("the registry answers again")
			}
			away = false
			pauses.Reset()
		})
		if ctx.Err() != nil || errors.Is(err, errRelist) || errors.Is(err, rpctypes.ErrCompacted) {
			continue
		}
		if !away {
			away = true
			r.log.Warn("the registry does not answer; the known instances stay valid", zap.Error(err))
			f.away(err)
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

// follow lists all keys and then passes on every change, until an error or a relist. It calls heard before
// each.
func (r *Registry) follow(ctx context.Context, f feed, heard func()) error {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	var beating sync.WaitGroup
	beating.Go(func() { cancel(r.awaitOutage(ctx, f.prefix)) })
	defer func() { cancel(nil); beating.Wait() }()

	call, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	got, err := r.client.Get(call, f.prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	heard()
	f.list(got.Kvs)
	changes := r.client.Watch(ctx, f.prefix, clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision+1), clientv3.WithProgressNotify())
	again := time.NewTimer(relistInterval)
	defer again.Stop()
	for {
		select {
		case change, ok := <-changes:
			if !ok || change.Err() != nil {
				return cmp.Or(context.Cause(ctx), change.Err(), errors.New("the watch was closed"))
			}
			if len(change.Events) > 0 {
				heard()
				f.change(change.Events)
			}
		case <-again.C:
			return errRelist
		}
	}
}

// awaitOutage returns once etcd does not answer or ctx ends. It reads the watched keys, because the process may have
// no right to others.
func (r *Registry) awaitOutage(ctx context.Context, prefix string) error {
	ticks := time.NewTicker(livenessInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := r.client.Get(call, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		cancel()
		if err != nil {
			return err
		}
	}
}

// update returns the update for an event, and keeps track of the known instances. An instance whose key becomes
// invalid counts as deleted.
func (r *Registry) update(e *clientv3.Event, known map[registry.Key]bool) (registry.Update, bool) {
	if e.Type != clientv3.EventTypeDelete {
		if in, ok := r.instance(e.Kv); ok {
			known[in.Key()] = true
			return registry.Update{Put: &in}, true
		}
	}
	key := keyUnder(r.prefix, e.Kv.Key)
	gone := known[key]
	delete(known, key)
	return registry.Update{Delete: &key}, gone
}
