// Package instances caches the instances that the registry knows, so that steps are dispatched while
// the registry is away. It also decides what a vanished registration means: the worker may still work.
package instances

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/desired"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Cache caches the instances that the registry knows. When the registry is away the cache stays
// as it is, and steps are still dispatched (guarantees F9). An instance whose registration vanishes
// may still work: missing.go decides what becomes of it (F11). Safe for concurrent use.
type Cache struct {
	log      *zap.Logger
	onChange func(filled bool, addresses map[string]bool)
	desired  *desired.State
	verifier verifier
	capacity atomic.Int64 // capacity of the instances that may take steps

	mu        sync.Mutex
	source    cacheSource
	awaySince time.Time // since when the registry is away (zero while it is there)
	instances map[registry.Key]registry.Instance
	missing   missingInstances
	lists     map[string]*List           // by agent: those that were built since the last change
	changed   chan struct{}              // closed and replaced at each change
	unclaimed map[registry.Key]time.Time // desires without an instance, since when
}

// cacheSource is where the instances of the cache come from.
type cacheSource int

const (
	unfilled    cacheSource = iota
	snapshotted             // from a snapshot; the registry has not delivered any yet
	listed                  // from the registry
)

// New returns an empty cache. onChange is called at each change, in order, with whether the
// cache was ever filled and the addresses of its instances. It must not use the cache.
func New(log *zap.Logger, onChange func(filled bool, addresses map[string]bool)) *Cache {
	r := &Cache{
		log: log, onChange: onChange, verifier: verifier{wake: make(chan struct{}, 1)},
		instances: map[registry.Key]registry.Instance{}, missing: missingInstances{absences: map[registry.Key]*absence{}},
		lists: map[string]*List{}, changed: make(chan struct{}), unclaimed: map[registry.Key]time.Time{},
	}
	r.desired = desired.New(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.announce()
	})
	return r
}

// Desired returns the desired state of these instances, as operators set it.
func (r *Cache) Desired() *desired.State { return r.desired }

// Watch keeps the cache up to date from the registry until ctx ends.
func (r *Cache) Watch(ctx context.Context, w registry.Watcher) error {
	var verifying sync.WaitGroup
	defer verifying.Wait()
	if r.verifier.ask != nil {
		verifying.Go(func() { r.verifier.run(ctx, r) })
	}
	return w.Watch(ctx, r.Apply)
}

// Apply is the callback of registry.Watcher.
func (r *Cache) Apply(u registry.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.Unreachable != nil {
		r.awaySince = time.Now()
		defer r.announce()
		r.log.Warn("the registry is away; dispatching to the instances known so far", zap.Error(u.Unreachable), zap.Int("instances", len(r.instances)))
		return
	}
	r.awaySince = time.Time{}
	switch {
	case u.List != nil:
		r.source = listed
		r.replace(*u.List)
		r.log.Info("registry listed", zap.Int("instances", len(r.instances)))
	case u.Put != nil:
		r.instances[u.Put.Key()] = *u.Put
	case u.Delete != nil:
		r.remove(*u.Delete)
	}
	r.missing.review(r.instances, time.Now())
	r.announce()
}

// replace is called with the lock held. Registrations that are not on the list have vanished.
func (r *Cache) replace(list []registry.Instance) {
	before := r.instances
	r.instances = make(map[registry.Key]registry.Instance, len(list))
	for _, in := range list {
		r.instances[in.Key()] = in
	}
	for key, in := range before {
		if _, ok := r.instances[key]; !ok {
			r.instances[key] = in
			r.remove(key)
		}
	}
}

// remove is called with the lock held, for a registration that vanished. A drained instance is removed at once,
// because its registration is expected to end.
func (r *Cache) remove(key registry.Key) {
	in, ok := r.instances[key]
	delete(r.instances, key)
	if !ok || r.verifier.ask == nil || r.desired.Get(key).Kind == registry.Drain {
		return
	}
	r.missing.add(in, time.Now())
	r.verifier.notify()
}

// announce is called with the lock held, after each change. It wakes those who wait for one.
func (r *Cache) announce() {
	addresses, places := map[string]bool{}, 0
	for _, in := range r.all() {
		addresses[in.Address] = true
		if _, why := r.fitness(in); why == selection.Available {
			places += in.Capacity
		}
	}
	r.capacity.Store(int64(places))
	clear(r.lists)
	close(r.changed)
	r.changed = make(chan struct{})
	r.onChange(r.source != unfilled, addresses)
}

// all is called with the lock held. It returns the registered instances and the missing ones that
// are still shown.
func (r *Cache) all() []registry.Instance {
	all := slices.Collect(maps.Values(r.instances))
	for _, a := range r.missing.absences {
		if r.missing.isShown(a) {
			all = append(all, a.instance)
		}
	}
	return all
}

// Instances returns all known instances, by agent and id.
func (r *Cache) Instances() []registry.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all()
	slices.SortFunc(all, compareKeys)
	return all
}

func compareKeys(a, b registry.Instance) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID))
}

// Knows reports whether any instance of the agent is known, in whatever state.
func (r *Cache) Knows(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.all(), func(in registry.Instance) bool { return in.Agent == agent })
}

// IsFilled reports whether the cache was ever filled, from the registry or from a snapshot.
func (r *Cache) IsFilled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source != unfilled
}

// IsMissing reports whether the registration of an instance vanished and the instance is still
// shown.
func (r *Cache) IsMissing(key registry.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.missing.absences[key]
	return ok && r.missing.isShown(a)
}

// IsFrozen reports whether so many registrations vanished at once that no instance is removed.
func (r *Cache) IsFrozen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing.frozen
}

// Staleness returns for how long the registry has been away (0 while it is there).
func (r *Cache) Staleness() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.awaySince.IsZero() {
		return 0
	}
	return time.Since(r.awaySince)
}

// Capacity returns how many steps the instances that may take steps can run at once. It takes no
// lock and may be used in onChange.
func (r *Cache) Capacity() int { return int(r.capacity.Load()) }
