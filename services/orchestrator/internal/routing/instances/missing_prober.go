package instances

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
)

// Health is the result of probing the worker of a missing instance.
type Health string

// The answers.
const (
	Unprobed    Health = ""
	Serving     Health = "serving"
	NotServing  Health = "not serving" // the worker answered that it is stopping or registering again
	Unreachable Health = "unreachable" // no answer, or the answer of another instance
)

// reviewPeriod is the time between two probes of the missing instances.
const reviewPeriod = time.Second

// missingProber probes the workers of instances whose registration vanished.
type missingProber struct {
	probe func(context.Context, registry.Instance) Health // (nil removes missing instances at once)
	wake  chan struct{}                                   // has capacity 1; a value means that an instance went missing
}

// SetProbe sets the function that probes the worker of a missing instance. Without it, a missing instance is
// removed at once. Call it before Watch. The function must check that the same instance answers, and must return
// within about 2 s.
func (c *Cache) SetProbe(ask func(context.Context, registry.Instance) Health) {
	c.prober.probe = ask
}

func (m *missingProber) notify() {
	select {
	case m.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// run probes the missing instances of a cache until ctx ends.
func (m *missingProber) run(ctx context.Context, r *Cache) {
	ticks := time.NewTicker(reviewPeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-m.wake:
		}
		m.probeAll(ctx, r)
	}
}

// probeAll probes all missing instances concurrently and reviews them with the results.
func (m *missingProber) probeAll(ctx context.Context, r *Cache) {
	r.mu.Lock()
	asked := make([]*absence, 0, len(r.missing.absences))
	for _, a := range r.missing.absences {
		asked = append(asked, a)
	}
	r.mu.Unlock()
	if len(asked) == 0 {
		return
	}
	answers := make([]Health, len(asked))
	var asking sync.WaitGroup
	for i, a := range asked {
		asking.Go(func() { answers[i] = m.probe(ctx, a.instance) })
	}
	asking.Wait()
	if ctx.Err() != nil {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	for i, a := range asked {
		if a.health != answers[i] {
			a.health = answers[i]
			r.log.Info("the registration of an instance vanished", zap.String("agent", a.instance.Agent),
				zap.String("instance", a.instance.ID), zap.String("worker", string(a.health)))
		}
	}
	before := r.missing.frozen
	r.missing.review(r.instances, time.Now())
	switch {
	case r.missing.frozen && !before:
		r.log.Warn("many registrations vanished at once; removals are frozen until the workers have answered",
			zap.Int("vanished", len(r.missing.absences)), zap.Int("registered", len(r.instances)))
	case before && !r.missing.frozen:
		r.log.Info("removals are no longer frozen", zap.Int("registered", len(r.instances)))
	}
	r.notifyChange()
}
