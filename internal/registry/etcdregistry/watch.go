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
	// livenessInterval is the interval of calls that check whether etcd answers. A watch alone does not notice an
	// outage, because the client retries forever.
	livenessInterval = 2 * time.Second
	// relistInterval is the interval at which all keys are listed again, in case the watch missed events
	// (guarantees, section 5.2.5).
	relistInterval = time.Minute
)

// errRelist ends a working watch so that it starts again with a new list.
var errRelist = errors.New("list again")

// keyHandler holds the callbacks for the keys under a prefix.
type keyHandler struct {
	prefix   string
	onList   func([]*mvccpb.KeyValue) // receives all keys, which replace the known ones
	onChange func([]*clientv3.Event)  // receives changes in order
	onOutage func(error)              // called once per outage; the known keys stay valid
}

// Watch implements registry.Watcher. It reports each outage once, within about 5 s.
func (r *Registry) Watch(ctx context.Context, apply func(registry.Update)) error {
	known := map[registry.Key]bool{}
	return r.watchKeys(ctx, keyHandler{
		prefix: r.instancePrefix,
		onList: func(kvs []*mvccpb.KeyValue) {
			all := make([]registry.Instance, 0, len(kvs))
			clear(known)
			for _, kv := range kvs {
				if in, ok := r.decodeInstance(kv); ok {
					all, known[in.Key()] = append(all, in), true
				}
			}
			apply(registry.Update{List: &all})
		},
		onChange: func(events []*clientv3.Event) {
			for _, e := range events {
				if u, ok := r.updateFromEvent(e, known); ok {
					apply(u)
				}
			}
		},
		onOutage: func(err error) { apply(registry.Update{Unreachable: r.callError(ctx, "registry.Watch", err)}) },
	})
}

// watchKeys lists and watches the keys of f until ctx ends, and retries during outages.
func (r *Registry) watchKeys(ctx context.Context, f keyHandler) error {
	away := false
	pauses := newBackoff()
	for ctx.Err() == nil {
		err := r.listAndWatch(ctx, f, func() {
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
			f.onOutage(err)
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

// listAndWatch lists all keys and then passes each change to f, until an error or until it is time to list again.
// It calls heard whenever etcd has answered.
func (r *Registry) listAndWatch(ctx context.Context, f keyHandler, heard func()) error {
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
	f.onList(got.Kvs)
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
				f.onChange(change.Events)
			}
		case <-again.C:
			return errRelist
		}
	}
}

// awaitOutage returns the error once etcd does not answer, or when ctx ends. It reads the watched keys, because
// the process may not be permitted to read others.
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

// updateFromEvent returns the update for an event and maintains the set of known instances. An instance whose key
// becomes invalid counts as deleted. ok is false if there is no update.
func (r *Registry) updateFromEvent(e *clientv3.Event, known map[registry.Key]bool) (registry.Update, bool) {
	if e.Type != clientv3.EventTypeDelete {
		if in, ok := r.decodeInstance(e.Kv); ok {
			known[in.Key()] = true
			return registry.Update{Put: &in}, true
		}
	}
	key := keyFromPath(r.instancePrefix, e.Kv.Key)
	gone := known[key]
	delete(known, key)
	return registry.Update{Delete: &key}, gone
}
