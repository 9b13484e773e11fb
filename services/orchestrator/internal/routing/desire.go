package routing

import (
	"context"
	"maps"

	"github.com/troupe-dev/troupe/pkg/registry"
)

// Want applies what operators want of instances at once, before the registry tells it to
// everybody.
func (r *Roster) Want(desires ...registry.Desire) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range desires {
		r.desires[d.Key] = d
	}
	r.tell()
}

// Desire is what operators want of an instance; the zero Desire when nothing is recorded.
func (r *Roster) Desire(key registry.Key) registry.Desire {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.desires[key]
}

// FollowDesires keeps what operators want, until ctx ends.
func (r *Roster) FollowDesires(ctx context.Context, d registry.Desires) error {
	return d.WatchDesires(ctx, func(all map[registry.Key]registry.Desire) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.desires = all
		r.tell()
	})
}

// Unclaimed are the desires whose instances are not registered, and a channel that is
// closed at the next change of the roster. There are none while the registry is away.
func (r *Roster) Unclaimed() ([]registry.Desire, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.listed || !r.away.IsZero() {
		return nil, r.changed
	}
	var unclaimed []registry.Desire
	for d := range maps.Values(r.desires) {
		if _, ok := r.instances[d.Key]; !ok {
			unclaimed = append(unclaimed, d)
		}
	}
	return unclaimed, r.changed
}
