package instances

import (
	"cmp"
	"slices"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/desired"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// List holds what is known about the instances of one agent at one moment. All callers share it until the next
// change, so it must not be modified.
type List struct {
	// Instances may get steps. Ready instances come first, then ready ones whose registration has vanished, then
	// instances that must be started first (contract C-7). Each group is ordered by id.
	Instances  []registry.Instance
	Candidates []selection.Candidate // the same instances, as selection sees them, without steps in flight
	Sizes      selection.ClassSizes
	// Withheld instances may not get steps, because of their desired state, their own state, or a missing
	// registration. They are ordered by id.
	Withheld []selection.Rejected
	// WithheldCapabilities lists all capabilities of the withheld instances.
	WithheldCapabilities []string
}

// List returns the instances of an agent, and a channel that is closed at the next change of the cache. The list
// is built once per change, not once per call.
func (c *Cache) List(agent string) (*List, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list(agent), c.changed
}

// list returns the cached list of an agent, or builds it. The caller holds the lock.
func (c *Cache) list(agent string) *List {
	l, ok := c.lists[agent]
	if !ok {
		l = newList(c, agent)
		c.lists[agent] = l
	}
	return l
}

// newList builds the list of an agent. The caller holds the lock of the cache.
func newList(r *Cache, agent string) *List {
	var classes [3][]registry.Instance
	l := &List{}
	add := func(in registry.Instance, class selection.CandidateClass, why selection.Availability) {
		if why == selection.Available {
			classes[class] = append(classes[class], in)
		} else {
			l.Withheld = append(l.Withheld, selection.Rejected{ID: in.ID, Incarnation: in.Incarnation, Availability: why})
			l.WithheldCapabilities = append(l.WithheldCapabilities, in.Capabilities...)
		}
	}
	for _, in := range r.instances {
		if in.Agent == agent {
			class, why := r.classify(in)
			add(in, class, why)
		}
	}
	for key, a := range r.missing.absences {
		if _, back := r.instances[key]; key.Agent == agent && !back && r.missing.isShown(a) {
			class, why := r.classify(a.instance)
			if why == selection.Available && (!r.missing.frozen || class != selection.Ready) {
				why = selection.Missing
			}
			add(a.instance, selection.Unregistered, why)
		}
	}
	for class, instances := range classes {
		slices.SortFunc(instances, compareKeys)
		for _, in := range instances {
			l.Instances = append(l.Instances, in)
			l.Candidates = append(l.Candidates, selection.Candidate{
				ID: in.ID, Version: in.Version, Incarnation: in.Incarnation, Capacity: int32(in.Capacity), Class: selection.CandidateClass(class),
				Capabilities: in.Capabilities,
			})
		}
	}
	slices.SortFunc(l.Withheld, func(a, b selection.Rejected) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(l.WithheldCapabilities)
	l.WithheldCapabilities = slices.Compact(l.WithheldCapabilities)
	l.Sizes = selection.PrepareCandidates(l.Candidates)
	return l
}

// classify returns the class of an instance and whether it may get steps. This depends on the restriction of its
// agent, its desired state and its registered state. The caller holds the lock.
func (c *Cache) classify(in registry.Instance) (selection.CandidateClass, selection.Availability) {
	want, restriction := c.desired.Lookup(in.Key())
	switch {
	case restriction == desired.Quarantined:
		return 0, selection.Quarantined
	case restriction == desired.StateUnknown:
		return 0, selection.NotReady
	case want == registry.Drain, in.State == lifecycle.ShuttingDown:
		return 0, selection.Draining
	case !want.AllowsSteps(), in.State == lifecycle.Paused:
		return 0, selection.Paused
	case in.State == lifecycle.Ready:
		return selection.Ready, selection.Available
	case in.State == lifecycle.Uninitialized:
		return selection.Unstarted, selection.Available
	default:
		return 0, selection.NotReady
	}
}

// Ready returns how many instances of an agent accept steps.
func (c *Cache) Ready(agent string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.list(agent).Sizes
	return of[selection.Ready] + of[selection.Unregistered]
}
