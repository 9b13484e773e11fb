package routing

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/lifecycle"
	"github.com/troupe-dev/troupe/pkg/registry"
)

// Roster is the last known registry. When the registry is away it stays as it is, and
// routing goes on (guarantees F9). Safe for concurrent use.
type Roster struct {
	log *zap.Logger

	mu        sync.Mutex
	instances map[registry.Key]registry.Instance
	turn      map[string]int // round robin, by agent
	listed    bool           // was filled once
	away      time.Time      // since when the registry is away; zero while it is there
	changed   chan struct{}  // closed and replaced at each change
	onChange  func(listed bool, addresses map[string]bool)
}

// NewRoster returns an empty roster. onChange is called at each change, in order, with
// whether the roster was ever filled and the addresses that are registered; it must not
// use the roster.
func NewRoster(log *zap.Logger, onChange func(listed bool, addresses map[string]bool)) *Roster {
	return &Roster{
		log: log, instances: map[registry.Key]registry.Instance{}, turn: map[string]int{},
		changed: make(chan struct{}), onChange: onChange,
	}
}

// Apply is the callback of registry.Watcher.
func (r *Roster) Apply(u registry.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.Away != nil {
		r.away = time.Now()
		r.log.Warn("the registry is away; serving from what is known", zap.Error(u.Away), zap.Int("instances", len(r.instances)))
		return
	}
	r.away = time.Time{}
	switch {
	case u.List != nil:
		r.listed = true
		clear(r.instances)
		for _, in := range *u.List {
			r.instances[in.Key()] = in
		}
		r.log.Info("registry listed", zap.Int("instances", len(r.instances)))
	case u.Put != nil:
		r.instances[u.Put.Key()] = *u.Put
	case u.Delete != nil:
		delete(r.instances, *u.Delete)
	}
	addresses := map[string]bool{}
	for _, in := range r.instances {
		addresses[in.Address] = true
	}
	close(r.changed)
	r.changed = make(chan struct{})
	r.onChange(r.listed, addresses)
}

// Staleness is for how long the registry has been away; zero while it is there.
func (r *Roster) Staleness() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away.IsZero() {
		return 0
	}
	return time.Since(r.away)
}

// Instances are all that are known, by agent and id.
func (r *Roster) Instances() []registry.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]registry.Instance, 0, len(r.instances))
	for _, in := range r.instances {
		all = append(all, in)
	}
	slices.SortFunc(all, func(a, b registry.Instance) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Candidates are the ready instances of an agent, in the order in which to try them: each
// call begins with the next one (round robin), so that steps spread evenly. The channel is
// closed at the next change of the roster.
func (r *Roster) Candidates(agent string) ([]registry.Instance, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ready []registry.Instance
	for _, in := range r.instances {
		if in.Agent == agent && in.State == lifecycle.Ready {
			ready = append(ready, in)
		}
	}
	if len(ready) == 0 {
		return nil, r.changed
	}
	slices.SortFunc(ready, func(a, b registry.Instance) int { return cmp.Compare(a.ID, b.ID) })
	first := r.turn[agent] % len(ready)
	r.turn[agent]++
	return append(ready[first:], ready[:first]...), r.changed
}

// Ready counts the ready instances of an agent.
func (r *Roster) Ready(agent string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, in := range r.instances {
		if in.Agent == agent && in.State == lifecycle.Ready {
			n++
		}
	}
	return n
}

// Knows reports whether any instance of the agent is registered, in whatever state.
func (r *Roster) Knows(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.instances {
		if key.Agent == agent {
			return true
		}
	}
	return false
}

// Listed reports whether the registry was ever read.
func (r *Roster) Listed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}

// Follow keeps the roster until ctx ends.
func (r *Roster) Follow(ctx context.Context, w registry.Watcher) error {
	return w.Watch(ctx, r.Apply)
}
