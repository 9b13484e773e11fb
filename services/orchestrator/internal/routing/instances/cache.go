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
// and steps are still dispatched (guarantee F9). An instance whose registration vanished may still run. File
// missing.go decides what happens to it (guarantee F11). Safe for concurrent use.
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
	unfilled     cacheSource = iota
	fromSnapshot             // from a snapshot; the registry has not delivered any yet
	fromRegistry             // from the registry
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
func (c *Cache) Desired() *desired.State { return c.desired }

// Watch updates the cache from the registry until ctx ends.
func (c *Cache) Watch(ctx context.Context, w registry.Watcher) error {
	var verifying sync.WaitGroup
	defer verifying.Wait()
	if c.prober.probe != nil {
		verifying.Go(func() { c.prober.run(ctx, c) })
	}
	return w.Watch(ctx, c.Apply)
}

// Apply applies an update of the registry. It is the callback for registry.Watcher.
func (c *Cache) Apply(u registry.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.Unreachable != nil {
		c.registryAwaySince = time.Now()
		defer c.notifyChange()
		c.log.Warn("the registry is away; dispatching to the instances known so far", zap.Error(u.Unreachable), zap.Int("instances", len(c.instances)))
		return
	}
	c.registryAwaySince = time.Time{}
	switch {
	case u.List != nil:
		c.source = fromRegistry
		c.replace(*u.List)
		c.log.Info("registry listed", zap.Int("instances", len(c.instances)))
	case u.Put != nil:
		c.instances[u.Put.Key()] = *u.Put
	case u.Delete != nil:
		c.remove(*u.Delete)
	}
	c.missing.review(c.instances, time.Now())
	c.notifyChange()
}

// replace replaces all registered instances by a list. Instances that are not on the list have vanished. The
// caller holds the lock.
func (c *Cache) replace(list []registry.Instance) {
	before := c.instances
	c.instances = make(map[registry.Key]registry.Instance, len(list))
	for _, in := range list {
		c.instances[in.Key()] = in
	}
	for key, in := range before {
		if _, ok := c.instances[key]; !ok {
			c.instances[key] = in
			c.remove(key)
		}
	}
}

// remove handles a registration that vanished. An instance that operators drain is removed at once, because its
// registration is expected to end. Any other is kept as missing and probed, if there is a probe. The caller holds the lock.
func (c *Cache) remove(key registry.Key) {
	in, ok := c.instances[key]
	delete(c.instances, key)
	if !ok || c.prober.probe == nil || c.desired.Get(key).Kind == registry.Drain {
		return
	}
	c.missing.add(in, time.Now())
	c.prober.notify()
}

// notifyChange wakes all goroutines that wait for a change. The caller holds the lock.
func (c *Cache) notifyChange() {
	addresses, places := map[string]bool{}, 0
	for _, in := range c.shownInstances() {
		addresses[in.Address] = true
		if _, why := c.classify(in); why == selection.Available {
			places += in.Capacity
		}
	}
	c.capacity.Store(int64(places))
	clear(c.lists)
	close(c.changed)
	c.changed = make(chan struct{})
	c.onChange(c.source != unfilled, addresses)
}

// shownInstances returns the registered instances and the missing ones that still count as known. The caller holds
// the lock.
func (c *Cache) shownInstances() []registry.Instance {
	all := slices.Collect(maps.Values(c.instances))
	for _, a := range c.missing.absences {
		if c.missing.isShown(a) {
			all = append(all, a.instance)
		}
	}
	return all
}

// Instances returns all known instances, ordered by agent and id.
func (c *Cache) Instances() []registry.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.shownInstances()
	slices.SortFunc(all, compareKeys)
	return all
}

func compareKeys(a, b registry.Instance) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID))
}

// KnowsAgent reports whether any instance of the agent is known, in any state.
func (c *Cache) KnowsAgent(agent string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.shownInstances(), func(in registry.Instance) bool { return in.Agent == agent })
}

// IsFilled reports whether the cache was ever filled, from the registry or from a snapshot.
func (c *Cache) IsFilled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.source != unfilled
}

// IsMissing reports whether the registration of an instance has vanished while the instance still counts as known.
func (c *Cache) IsMissing(key registry.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.missing.absences[key]
	return ok && c.missing.isShown(a)
}

// HasFrozenRemovals reports whether removals are frozen, because too many registrations vanished at once.
func (c *Cache) HasFrozenRemovals() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missing.frozen
}

// Staleness returns how long the registry has been unreachable (0 while it is reachable).
func (c *Cache) Staleness() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.registryAwaySince.IsZero() {
		return 0
	}
	return time.Since(c.registryAwaySince)
}

// Capacity returns how many steps the available instances can run at once. It takes no lock, so onChange may call
// it.
func (c *Cache) Capacity() int { return int(c.capacity.Load()) }
