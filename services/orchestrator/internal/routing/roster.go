package routing

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
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/balance"
)

// Roster is the last known registry. When the registry is away it stays as it is, and
// routing goes on (guarantees F9). Registrations that vanish while their worker still works
// are taken for what they are (F11, removal.go). Safe for concurrent use.
type Roster struct {
	log *zap.Logger

	mu        sync.Mutex
	instances map[registry.Key]registry.Instance
	lists     map[string]*List // by agent, as far as they were asked for since the last change
	listed    bool             // was filled once
	recalled  bool             // from a snapshot, and not by the registry yet
	away      time.Time        // since when the registry is away; zero while it is there
	changed   chan struct{}    // closed and replaced at each change
	onChange  func(listed bool, addresses map[string]bool)
	desires   map[registry.Key]registry.Desire
	unclaimed map[registry.Key]time.Time // desires without an instance, since when
	unheard   bool                       // they are awaited, and the registry told none yet
	heard     bool                       // the registry told them

	quarantined map[string]registry.Desire // agents that are shut out: of the desires
	shut        map[string]chan struct{}   // by agent, closed while it is
	gone        removals

	ask      func(context.Context, registry.Instance) Health // nil: nobody is asked
	vanished chan struct{}                                   // of 1: somebody is to be asked

	places atomic.Int64
}

// NewRoster returns an empty roster. onChange is called at each change, in order, with
// whether the roster was ever filled and the addresses that are registered; it must not
// use the roster.
func NewRoster(log *zap.Logger, onChange func(listed bool, addresses map[string]bool)) *Roster {
	return &Roster{
		log: log, instances: map[registry.Key]registry.Instance{}, lists: map[string]*List{},
		changed: make(chan struct{}), onChange: onChange,
		desires: map[registry.Key]registry.Desire{}, unclaimed: map[registry.Key]time.Time{}, gone: removals{absent: map[registry.Key]*absence{}},
		quarantined: map[string]registry.Desire{}, shut: map[string]chan struct{}{},
		vanished: make(chan struct{}, 1),
	}
}

// Apply is the callback of registry.Watcher.
func (r *Roster) Apply(u registry.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.Away != nil {
		r.away = time.Now()
		defer r.tell()
		r.log.Warn("the registry is away; serving from what is known", zap.Error(u.Away), zap.Int("instances", len(r.instances)))
		return
	}
	r.away = time.Time{}
	switch {
	case u.List != nil:
		r.listed, r.recalled = true, false
		r.replace(*u.List)
		r.log.Info("registry listed", zap.Int("instances", len(r.instances)))
	case u.Put != nil:
		r.instances[u.Put.Key()] = *u.Put
	case u.Delete != nil:
		r.remove(*u.Delete)
	}
	r.gone.review(r.instances, time.Now())
	r.tell()
}

// replace is called with the lock held. Who is not on the list has vanished.
func (r *Roster) replace(list []registry.Instance) {
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

// tell is called with the lock held, after each change.
func (r *Roster) tell() {
	r.shutOut()
	addresses, places := map[string]bool{}, 0
	for _, in := range r.all() {
		addresses[in.Address] = true
		if _, why := r.fitness(in); why == balance.Available {
			places += in.Capacity
		}
	}
	r.places.Store(int64(places))
	clear(r.lists)
	close(r.changed)
	r.changed = make(chan struct{})
	r.onChange(r.listed, addresses)
}

// all is called with the lock held. It returns all that are known: those registered, and
// those that vanished and are kept.
func (r *Roster) all() []registry.Instance {
	all := slices.Collect(maps.Values(r.instances))
	for _, a := range r.gone.absent {
		if r.gone.known(a) {
			all = append(all, a.instance)
		}
	}
	return all
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

// Places is how many steps those instances take at once that may take steps. It does not wait
// for the roster, and may be used in onChange.
func (r *Roster) Places() int { return int(r.places.Load()) }

// Instances are all that are known, by agent and id.
func (r *Roster) Instances() []registry.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all()
	slices.SortFunc(all, byKey)
	return all
}

func byKey(a, b registry.Instance) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID))
}

// Knows reports whether any instance of the agent is known, in whatever state.
func (r *Roster) Knows(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.all(), func(in registry.Instance) bool { return in.Agent == agent })
}

// Listed reports whether the registry was ever read.
func (r *Roster) Listed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}

// Follow keeps the roster until ctx ends.
func (r *Roster) Follow(ctx context.Context, w registry.Watcher) error {
	var tending sync.WaitGroup
	defer tending.Wait()
	if r.ask != nil {
		tending.Go(func() { r.tend(ctx) })
	}
	return w.Watch(ctx, r.Apply)
}
