package instances

import (
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
)

// Unclaimed returns the desires whose instances are gone, and a channel that is closed at the next
// change of the cache. An instance may register anew within registrationTTL before its desire is
// unclaimed. One that drains is gone for good at once. There are none while the registry is away.
func (r *Cache) Unclaimed() ([]registry.DesiredState, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.unclaimed
	r.unclaimed = map[registry.Key]time.Time{}
	if r.source == unfilled || !r.awaySince.IsZero() {
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
		r.unclaimed[key] = since
		if d.Kind == registry.Drain || now.Sub(since) >= registrationTTL {
			unclaimed = append(unclaimed, d)
		}
	}
	return unclaimed, r.changed
}
