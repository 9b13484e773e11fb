package routing

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
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
		r.desires, r.unheard, r.heard = all, false, true
		r.tell()
	})
}

// Unclaimed are the desires whose instances are gone, and a channel that is closed at the
// next change of the roster. An instance has a ttl to register anew before what is wanted of
// it is unclaimed, unless it shall drain: then it goes for good. There are none while the
// registry is away.
func (r *Roster) Unclaimed() ([]registry.Desire, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.unclaimed
	r.unclaimed = map[registry.Key]time.Time{}
	if !r.listed || !r.away.IsZero() {
		return nil, r.changed
	}
	now := time.Now()
	var unclaimed []registry.Desire
	for key, d := range r.desires {
		if key.Whole() {
			continue // it is for those to come, too
		}
		_, here := r.instances[key]
		_, doubtful := r.gone.absent[key]
		if here || doubtful {
			continue
		}
		since, known := before[key]
		if !known {
			since = now
		}
		r.unclaimed[key] = since
		if d.Want == registry.Drain || now.Sub(since) >= ttl {
			unclaimed = append(unclaimed, d)
		}
	}
	return unclaimed, r.changed
}
