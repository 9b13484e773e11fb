// Package backoff records instances that did not accept a step, so that other steps skip them for a while.
package backoff

import (
	"maps"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
)

// Backoffs is the set of instances in backoff, which steps skip for a while. Safe for concurrent use.
type Backoffs struct {
	mu         sync.Mutex
	byInstance map[instances.Incarnation]backoffEntry
}

type backoffEntry struct {
	until time.Time
	err   error
}

// New returns no backoffs.
func New() *Backoffs { return &Backoffs{byInstance: map[instances.Incarnation]backoffEntry{}} }

// Add makes all steps skip an instance for the given time, because of err.
func (b *Backoffs) Add(in registry.Instance, d time.Duration, err error) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.byInstance, func(_ instances.Incarnation, p backoffEntry) bool { return now.After(p.until) })
	b.byInstance[instances.IncarnationOf(in)] = backoffEntry{now.Add(d), err}
}

// Cancel ends the backoff of an instance if its error satisfies the predicate.
func (b *Backoffs) Cancel(in registry.Instance, ifError func(error) bool) {
	who := instances.IncarnationOf(in)
	b.mu.Lock()
	defer b.mu.Unlock()
	if ifError(b.byInstance[who].err) {
		delete(b.byInstance, who)
	}
}

// Errors returns the instances of an agent that are in backoff, with the error of each.
func (b *Backoffs) Errors(agent string) map[instances.Incarnation]error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs map[instances.Incarnation]error
	for who, p := range b.byInstance {
		if who.Agent == agent && time.Now().Before(p.until) {
			if errs == nil {
				errs = map[instances.Incarnation]error{}
			}
			errs[who] = p.err
		}
	}
	return errs
}
