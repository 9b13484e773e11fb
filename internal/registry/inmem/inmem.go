// Package inmem implements the registry in memory. It is the reference implementation of package registry. It is
// always reachable, and a registration lives until it is closed.
package inmem

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Registry implements registry.Registry. It is safe for concurrent use.
type Registry struct {
	mu             sync.Mutex
	revision       int64
	instances      map[registry.Key]registry.Instance
	watchers       map[*watcher]struct{}
	desiredStates  map[registry.Key]registry.DesiredState
	desiredChanged chan struct{} // closed and replaced when desired states change
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{
		instances:      map[registry.Key]registry.Instance{},
		watchers:       map[*watcher]struct{}{},
		desiredStates:  map[registry.Key]registry.DesiredState{},
		desiredChanged: make(chan struct{}),
	}
}

// Register implements registry.Registrar. It never blocks.
func (r *Registry) Register(ctx context.Context, in registry.Instance) (registry.Registration, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := in.Check(); err != nil {
		return nil, failure.New(failure.UserInvalidInput, "registry.Register", err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.instances[in.Key()]; ok {
		return nil, failure.Newf(failure.AgentState, "registry.Register",
			"instance %q of agent %q is registered already: give this one another id, or end the other", in.ID, in.Agent)
	}
	r.revision++
	in.Incarnation, in.Description = r.revision, registry.SingleLine(in.Description)
	r.put(in)
	return &registration{r, in.Key(), in.Incarnation}, nil
}

// Watch implements registry.Watcher.
func (r *Registry) Watch(ctx context.Context, apply func(registry.Update)) error {
	w := &watcher{notified: make(chan struct{}, 1)}
	r.mu.Lock()
	list := slices.SortedFunc(maps.Values(r.instances), func(a, b registry.Instance) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID))
	})
	r.watchers[w] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.watchers, w)
		r.mu.Unlock()
	}()

	apply(registry.Update{List: &list})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.notified:
		}
		r.mu.Lock()
		pending := w.pending
		w.pending = nil
		r.mu.Unlock()
		for _, u := range pending {
			if ctx.Err() != nil {
				return nil
			}
			apply(u)
		}
	}
}

// watcher queues the updates that its Watch has not applied yet, so that a slow watcher does not delay the others.
// The registry's mutex guards it.
type watcher struct {
	pending  []registry.Update
	notified chan struct{}
}

func (r *Registry) notify(u registry.Update) {
	for w := range r.watchers {
		w.pending = append(w.pending, u)
		select {
		case w.notified <- struct{}{}:
		default: // already notified
		}
	}
}

func (r *Registry) put(in registry.Instance) {
	r.instances[in.Key()] = in
	r.notify(registry.Update{Put: &in})
}

type registration struct {
	registry    *Registry
	key         registry.Key
	incarnation int64
}

// SetState implements registry.Registration.
func (g *registration) SetState(ctx context.Context, s lifecycle.State) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := g.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	in, ok := r.instances[g.key]
	if !ok || in.Incarnation != g.incarnation {
		return failure.Newf(failure.AgentState, "registry.SetState",
			"instance %q of agent %q is no longer registered as this one", g.key.ID, g.key.Agent)
	}
	in.State = s
	r.put(in)
	return nil
}

// Close implements registry.Registration.
func (g *registration) Close(context.Context) error {
	r := g.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if in, ok := r.instances[g.key]; !ok || in.Incarnation != g.incarnation {
		return nil
	}
	delete(r.instances, g.key)
	r.notify(registry.Update{Delete: &g.key})
	return nil
}

// Lease implements registry.Registration. The lease never expires.
func (*registration) Lease() (lifecycle.Lease, <-chan struct{}) { return lifecycle.LeaseOK, nil }
