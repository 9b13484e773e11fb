// Package instances caches the instances in the registry, so that steps are dispatched even while the registry
// cannot be reached. It also decides what happens to an instance whose registration vanished, because the worker
// may still run.
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

// Cache caches the instances in the registry. While the registry cannot be reached, the cache keeps its content
// and steps are still dispatched (guarantees F9). An instance whose registration vanished may still run. File
// missing.go decides what happens to it (F11). Safe for concurrent use.
type Cache struct {
	log      *zap.Logger
	onChange func(filled bool, addresses map[string]bool)
	desired  *desired.State
	prober   missingProber
	capacity atomic.Int64 // capacity of the instances that may take steps

	mu                sync.Mutex
	source            cacheSource
	registryAwaySince time.Time // when the registry became unreachable (zero while it is reachable)
	instances         map[registry.Key]registry.Instance
	missing           missingInstances
	lists             map[string]*List           // lists built since the last change, by agent
	changed           chan struct{}              // closed and replaced at each change
	unclaimedSince    map[registry.Key]time.Time // when the instance of a desired state was found missing, by its key
}

// cacheSource says where the instances of the cache come from.
type cacheSource int

const (
	unfilled    cacheSource = iota
	snapshotted             // from a snapshot; the registry has not delivered any yet
	listed                  // from the registry
)

// New returns an empty cache. onChange is called after each change, in order, and must not use the cache. Its
// arguments are whether the cache was ever filled, and the addresses of its instances.
func New(log *zap.Logger, onChange func(filled bool, addresses map[string]bool)) *Cache {
	r := &Cache{
		log: log, onChange: onChange, prober: missingProber{wake: make(chan struct{}, 1)},
		instances: map[registry.Key]registry.Instance{}, missing: missingInstances{absences: map[registry.Key]*absence{}},
		lists: map[string]*List{}, changed: make(chan struct{}), unclaimedSince: map[registry.Key]time.Time{},
	}
	r.desired = desired.New(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notifyChange()
	})
	return r
}

// Desired returns the desired states of the instances.
func (r *Cache) Desired() *desired.State { return r.desired }

// Watch updates the cache from the registry until ctx ends.
func (r *Cache) Watch(ctx context.Context, w registry.Watcher) error {
	var verifying sync.WaitGroup
	defer verifying.Wait()
	if r.prober.probe != nil {
		verifying.Go(func() { r.prober.run(ctx, r) })
	}
	return w.Watch(ctx, r.Apply)
}

// Apply applies an update of the registry. It is the callback for registry.Watcher.
func (r *Cache) Apply(u registry.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.Unreachable != nil {
		r.registryAwaySince = time.Now()
		defer r.notifyChange()
		r.log.Warn("the registry is away; dispatching to the instances known so far", zap.Error(u.Unreachable), zap.Int("instances", len(r.instances)))
		return
	}
	r.registryAwaySince = time.Time{}
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
	r.notifyChange()
}

// replace replaces all registered instances by a list. Instances that are not on the list have vanished. The
// caller holds the lock.
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

// remove handles a registration that vanished. A draining instance is removed at once, because its registration is
// expected to end. The caller holds the lock.
func (r *Cache) remove(key registry.Key) {
	in, ok := r.instances[key]
	delete(r.instances, key)
	if !ok || r.prober.probe == nil || r.desired.Get(key).Kind == registry.Drain {
		return
	}
	r.missing.add(in, time.Now())
	r.prober.notify()
}

// notifyChange wakes all goroutines that wait for a change. The caller holds the lock.
func (r *Cache) notifyChange() {
	addresses, places := map[string]bool{}, 0
	for _, in := range r.shownInstances() {
		addresses[in.Address] = true
		if _, why := r.classify(in); why == selection.Available {
			places += in.Capacity
		}
	}
	r.capacity.Store(int64(places))
	clear(r.lists)
	close(r.changed)
	r.changed = make(chan struct{})
	r.onChange(r.source != unfilled, addresses)
}

// shownInstances returns the registered instances and the missing ones that still count as known. The caller holds
// the lock.
func (r *Cache) shownInstances() []registry.Instance {
	all := slices.Collect(maps.Values(r.instances))
	for _, a := range r.missing.absences {
		if r.missing.isShown(a) {
			all = append(all, a.instance)
		}
	}
	return all
}

// Instances returns all known instances, ordered by agent and id.
func (r *Cache) Instances() []registry.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.shownInstances()
	slices.SortFunc(all, compareKeys)
	return all
}

func compareKeys(a, b registry.Instance) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID))
}

// KnowsAgent reports whether any instance of the agent is known, in any state.
func (r *Cache) KnowsAgent(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.shownInstances(), func(in registry.Instance) bool { return in.Agent == agent })
}

// IsFilled reports whether the cache was ever filled, from the registry or from a snapshot.
func (r *Cache) IsFilled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source != unfilled
}

// IsMissing reports whether the registration of an instance has vanished while the instance still counts as known.
func (r *Cache) IsMissing(key registry.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.missing.absences[key]
	return ok && r.missing.isShown(a)
}

// HasFrozenRemovals reports whether removals are frozen, because too many registrations vanished at once.
func (r *Cache) HasFrozenRemovals() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing.frozen
}

// Staleness returns how long the registry has been unreachable (0 while it is reachable).
func (r *Cache) Staleness() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.registryAwaySince.IsZero() {
		return 0
	}
	return time.Since(r.registryAwaySince)
}

// Capacity returns how many steps the available instances can run at once. It takes no lock, so onChange may call
// it.
func (r *Cache) Capacity() int { return int(r.capacity.Load()) }
