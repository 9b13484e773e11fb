package instances

import (
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
)

// UnclaimedDesiredStates returns the desired states whose instances are gone, and a channel that is closed at the
// next change. An instance may register again within registrationTTL. Only after that is its desired state
// unclaimed, or at once if the desired state is DRAIN. It returns none while the registry cannot be reached.
func (r *Cache) UnclaimedDesiredStates() ([]registry.DesiredState, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.unclaimedSince
	r.unclaimedSince = map[registry.Key]time.Time{}
	if r.source == unfilled || !r.registryAwaySince.IsZero() {
		return nil, r.changed
	}
	now := time.Now()
	var unclaimed []registry.DesiredState
	for key, d := range r.desired.All() {
		if key.IsWholeAgent() {
			continue // it also applies to instances that register later
		}
		_, registered := r.instances[key]
		_, missing := r.missing.absences[key]
		if registered || missing {
			continue
		}
		since, ok := before[key]
		if !ok {
			since = now
		}
		r.unclaimedSince[key] = since
		if d.Kind == registry.Drain || now.Sub(since) >= registrationTTL {
			unclaimed = append(unclaimed, d)
		}
	}
	return unclaimed, r.changed
}
