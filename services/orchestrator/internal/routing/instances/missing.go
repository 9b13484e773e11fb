package instances

import (
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
)

// These limits define how far the cache trusts the registry when registrations vanish (guarantee F11). A lease
// can expire although its worker still runs. A registry that loses many registrations at once is more likely wrong
// than right.
const (
	registrationTTL    = 15 * time.Second // lifetime of a registration, and how long a missing instance is kept
	maxMissingPercent  = 15               // removals freeze if more than this share is missing at once
	minMissingToFreeze = 2
)

// absence records an instance whose registration vanished, since when, and what its worker answered.
type absence struct {
	instance registry.Instance
	since    time.Time
	health   Health
}

// missingInstances decides what happens to instances whose registration vanished. An instance that answers gets no
// steps, and is removed after registrationTTL. An instance that does not answer is removed at once. When many
// vanish at once, removals are frozen: all keep getting steps until their workers have answered. The type has no
// clock and no lock. Callers pass the time and hold the lock of the cache.
type missingInstances struct {
	absences map[registry.Key]*absence
	frozen   bool
}

func (m *missingInstances) add(in registry.Instance, now time.Time) {
	m.absences[in.Key()] = &absence{instance: in, since: now}
}

// isDecided reports whether all missing workers were probed and removals are not frozen.
func (m *missingInstances) isDecided() bool {
	for _, a := range m.absences {
		if a.health == Unprobed {
			return false
		}
	}
	return !m.frozen
}

// review removes absences that are decided, and freezes or unfreezes removals.
func (m *missingInstances) review(registered map[registry.Key]registry.Instance, now time.Time) {
	taken := map[string]bool{}
	for _, in := range registered {
		taken[in.Address] = true
	}
	vanished, waiting := 0, false
	for key, a := range m.absences {
		old := now.Sub(a.since) >= registrationTTL
		switch _, back := registered[key]; {
		case back, taken[a.instance.Address], a.health == NotServing:
			delete(m.absences, key)
		case old && a.health == Unreachable, old && !m.frozen && a.health != Unprobed:
			delete(m.absences, key)
		case a.health == Unprobed:
			waiting = true
		case !old:
			vanished++
		}
	}
	if m.frozen {
		m.frozen = len(m.absences) > 0
		return
	}
	m.frozen = !waiting && vanished >= minMissingToFreeze && 100*vanished > maxMissingPercent*(len(registered)+len(m.absences))
}

// isShown reports whether the instance still counts as known. An instance that does not answer is kept only to
// detect the loss of many instances.
func (m *missingInstances) isShown(a *absence) bool { return m.frozen || a.health != Unreachable }
