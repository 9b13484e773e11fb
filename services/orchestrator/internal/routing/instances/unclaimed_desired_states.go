package instances

import (
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
)

// UnclaimedDesiredStates returns the desired states whose instances are gone, and a channel that is closed at the
// next change. An instance may register again within registrationTTL. Only after that is its desired state
// unclaimed, or at once if the desired state is DRAIN. It returns none while the registry cannot be reached.
func (c *Cache) UnclaimedDesiredStates() ([]registry.DesiredState, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.unclaimedSince
	c.unclaimedSince = map[registry.Key]time.Time{}
	if c.source == unfilled || !c.registryAwaySince.IsZero() {
		return nil, c.changed
	}
	now := time.Now()
	var unclaimed []registry.DesiredState
	for key, d := range c.desired.All() {
		if key.IsWholeAgent() {
			continue // it also applies to instances that register later
		}
		_, registered := c.instances[key]
		_, missing := c.missing.absences[key]
		if registered || missing {
			continue
		}
		since, ok := before[key]
		if !ok {
			since = now
		}
		c.unclaimedSince[key] = since
		if d.Kind == registry.Drain || now.Sub(since) >= registrationTTL {
			unclaimed = append(unclaimed, d)
		}
	}
	return unclaimed, c.changed
}
