package routing

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
)

// How far the registry is believed when registrations vanish (guarantees F11). A lease can
// run out under a worker that works, and a registry that loses many at once is more likely
// to be wrong than right.
const (
	ttl          = 15 * time.Second // of a registration, and of doubt about one that vanished
	massShare    = 15               // percent of the instances: more that vanish within a ttl freeze removals
	massLeast    = 2
	reviewPeriod = time.Second
)

// Health is what a worker answered when it was asked whether it serves.
type Health string

// The answers.
const (
	Unasked     Health = ""
	Serving     Health = "serving"
	NotServing  Health = "not serving" // it said so itself: it stops, or registers anew
	Unreachable Health = "unreachable" // nobody answers, or another does
)

// absence is an instance whose registration vanished.
type absence struct {
	instance registry.Instance
	since    time.Time
	health   Health
}

// removals decides what becomes of instances whose registration vanished: one that answers
// is kept out of work for a ttl and then removed, one that does not is removed, and when
// many vanish at once all of them stay in work until it is known better. It has no clock
// and no lock of its own.
type removals struct {
	absent map[registry.Key]*absence
	frozen bool
}

func (m *removals) vanish(in registry.Instance, now time.Time) {
	m.absent[in.Key()] = &absence{instance: in, since: now}
}

// settled reports whether everybody who vanished was asked, and what is registered believed.
func (m *removals) settled() bool {
	for _, a := range m.absent {
		if a.health == Unasked {
			return false
		}
	}
	return !m.frozen
}

// review drops what is settled, and freezes or thaws. present are those registered.
func (m *removals) review(present map[registry.Key]registry.Instance, now time.Time) {
	taken := map[string]bool{}
	for _, in := range present {
		taken[in.Address] = true
	}
	vanished, waiting := 0, false
	for key, a := range m.absent {
		old := now.Sub(a.since) >= ttl
		switch _, back := present[key]; {
		case back, taken[a.instance.Address], a.health == NotServing:
			delete(m.absent, key)
		case old && a.health == Unreachable, old && !m.frozen && a.health != Unasked:
			delete(m.absent, key)
		case a.health == Unasked:
			waiting = true
		case !old:
			vanished++
		}
	}
	if m.frozen {
		m.frozen = len(m.absent) > 0
		return
	}
	m.frozen = !waiting && vanished >= massLeast && 100*vanished > massShare*(len(present)+len(m.absent))
}

// known reports whether the instance is still shown. One that does not answer is only
// remembered, to be counted.
func (m *removals) known(a *absence) bool { return m.frozen || a.health != Unreachable }

// Verify makes the roster ask the workers of vanished registrations before it removes them.
// Without it they are removed at once. It is called before Follow; ask must look whether it
// is that instance which answers, and return within about two seconds.
func (r *Roster) Verify(ask func(context.Context, registry.Instance) Health) { r.ask = ask }

// Frozen reports whether so many registrations vanished at once that none is removed.
func (r *Roster) Frozen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone.frozen
}

// Missing reports whether the registration of an instance is gone and it is kept all the
// same.
func (r *Roster) Missing(key registry.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.gone.absent[key]
	return ok && r.gone.known(a)
}

// remove is called with the lock held, for a registration that vanished.
func (r *Roster) remove(key registry.Key) {
	in, ok := r.instances[key]
	delete(r.instances, key)
	if !ok || r.ask == nil || r.desires[key].Want == registry.Drain { // that is how a drain ends
		return
	}
	r.gone.vanish(in, time.Now())
	select {
	case r.vanished <- struct{}{}:
	default: // told already
	}
}

// tend asks those that vanished, until ctx ends.
func (r *Roster) tend(ctx context.Context) {
	ticks := time.NewTicker(reviewPeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-r.vanished:
		}
		r.examine(ctx)
	}
}

// examine asks everyone who vanished, all at once, and reviews what is known.
func (r *Roster) examine(ctx context.Context) {
	r.mu.Lock()
	asked := make([]*absence, 0, len(r.gone.absent))
	for _, a := range r.gone.absent {
		asked = append(asked, a)
	}
	r.mu.Unlock()
	if len(asked) == 0 {
		return
	}
	answers := make([]Health, len(asked))
	var asking sync.WaitGroup
	for i, a := range asked {
		asking.Go(func() { answers[i] = r.ask(ctx, a.instance) })
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
			r.log.Info("the registration of an instance is gone", zap.String("agent", a.instance.Agent),
				zap.String("instance", a.instance.ID), zap.String("worker", string(a.health)))
		}
	}
	before := r.gone.frozen
	r.gone.review(r.instances, time.Now())
	switch {
	case r.gone.frozen && !before:
		r.log.Warn("many registrations vanished at once; their instances stay in work until it is known better",
			zap.Int("vanished", len(r.gone.absent)), zap.Int("registered", len(r.instances)))
	case before && !r.gone.frozen:
		r.log.Info("removals go on", zap.Int("registered", len(r.instances)))
	}
	r.tell()
}
