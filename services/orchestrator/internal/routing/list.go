package routing

import (
	"cmp"
	"slices"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/balance"
)

// List is who is known of one agent at one moment. It is shared by all who look while
// nothing changes, and nobody changes it.
type List struct {
	// Instances are those that may take a step: those that are ready, then ready ones whose
	// registration is missing, then those that have to be started first (contract C-7); each
	// by id.
	Instances  []registry.Instance
	Candidates []balance.Candidate // the same, as decisions see them; with nothing in flight
	Of         balance.Sizes
	// Withheld are those that may not: what operators keep out of work, whatever it is
	// registered as, what is in another state, and what vanished and is kept; by id.
	Withheld []balance.Rejected
	// Asleep is what those can do together.
	Asleep []string
}

// List is who is known of an agent. The channel is closed at the next change of the roster.
// It is made once for each change, and not for each call.
func (r *Roster) List(agent string) (*List, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list(agent), r.changed
}

// list is called with the lock held.
func (r *Roster) list(agent string) *List {
	made, ok := r.lists[agent]
	if !ok {
		made = r.sort(agent)
		r.lists[agent] = made
	}
	return made
}

// sort is called with the lock held.
func (r *Roster) sort(agent string) *List {
	var classes [3][]registry.Instance
	l := &List{}
	add := func(in registry.Instance, class balance.Class, why balance.Why) {
		if why == balance.Available {
			classes[class] = append(classes[class], in)
		} else {
			l.Withheld = append(l.Withheld, balance.Rejected{ID: in.ID, Incarnation: in.Incarnation, Why: why})
			l.Asleep = append(l.Asleep, in.Capabilities...)
		}
	}
	for _, in := range r.instances {
		if in.Agent == agent {
			class, why := r.fitness(in)
			add(in, class, why)
		}
	}
	for key, a := range r.gone.absent {
		if _, back := r.instances[key]; key.Agent == agent && !back && r.gone.known(a) {
			class, why := r.fitness(a.instance)
			if why == balance.Available && (!r.gone.frozen || class != balance.Ready) {
				why = balance.Missing
			}
			add(a.instance, balance.Doubtful, why)
		}
	}
	for class, instances := range classes {
		slices.SortFunc(instances, byKey)
		for _, in := range instances {
			l.Instances = append(l.Instances, in)
			l.Candidates = append(l.Candidates, balance.Candidate{
				ID: in.ID, Version: in.Version, Incarnation: in.Incarnation, Capacity: int32(in.Capacity), Class: balance.Class(class),
				Capabilities: in.Capabilities,
			})
		}
	}
	slices.SortFunc(l.Withheld, func(a, b balance.Rejected) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(l.Asleep)
	l.Asleep = slices.Compact(l.Asleep)
	l.Of = balance.Arrange(l.Candidates)
	return l
}

// fitness is called with the lock held. Nobody may take steps while it is not known what operators
// want.
func (r *Roster) fitness(in registry.Instance) (balance.Class, balance.Why) {
	switch _, out := r.quarantined[in.Agent]; {
	case out:
		return 0, balance.ShutOut
	case r.unheard:
		return 0, balance.NotReady
	}
	return fitness(in, r.desires[in.Key()].Want)
}

// fitness is whether an instance may take steps, as it is registered and as operators want it.
func fitness(in registry.Instance, want registry.Want) (balance.Class, balance.Why) {
	switch {
	case want == registry.Drain, in.State == lifecycle.ShuttingDown:
		return 0, balance.Draining
	case !want.Routable(), in.State == lifecycle.Paused:
		return 0, balance.Paused
	case in.State == lifecycle.Ready:
		return balance.Ready, balance.Available
	case in.State == lifecycle.Uninitialized:
		return balance.Unstarted, balance.Available
	default:
		return 0, balance.NotReady
	}
}

// Ready counts the instances of an agent that take steps.
func (r *Roster) Ready(agent string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.list(agent).Of
	return of[balance.Ready] + of[balance.Doubtful]
}
