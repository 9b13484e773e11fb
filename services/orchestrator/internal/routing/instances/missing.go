package instances

import (
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
)

// These limits say how far the cache trusts the registry when registrations vanish (guarantees F11). A lease
// can expire although its worker still works. A registry that loses many registrations at once is more likely
// to be wrong than right.
const (
	registrationTTL = 15 * time.Second // of a registration, and of the doubt about one that vanished
	massPercent     = 15               // more of the instances than this, missing at once, freeze removals
	massMinimum     = 2
)

// absence is an instance whose registration vanished.
type absence struct {
	instance registry.Instance
	since    time.Time
	health   Health
}

// missingInstances decides what becomes of instances whose registration vanished. One that answers gets no
// steps for registrationTTL and is then removed. One that does not answer is removed at once. When many vanish
// at once, all of them keep their work until their workers have answered: removals are frozen. It has no clock
// and no lock of its own: callers pass the time and hold the lock of the cache.
type missingInstances struct {
	absences map[registry.Key]*absence
	frozen   bool
}

func (m *missingInstances) add(in registry.Instance, now time.Time) {
	m.absences[in.Key()] = &absence{instance: in, since: now}
}

// isDecided reports whether all missing workers were asked, and removals are not frozen.
func (m *missingInstances) isDecided() bool {
	for _, a := range m.absences {
		if a.health == Unasked {
			return false
		}
	}
	return !m.frozen
}

// review drops the absences that are decided, and freezes or unfreezes removals.
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
		case old && a.health == Unreachable, old && !m.frozen && a.health != Unasked:
			delete(m.absences, key)
		case a.health == Unasked:
			waiting = true
		case !old:
			vanished++
		}
	}
	if m.frozen {
		m.frozen = len(m.absences) > 0
		return
	}
	m.frozen = !waiting && vanished >= massMinimum && 100*vanished > massPercent*(len(registered)+len(m.absences))
}

// isShown reports whether the instance still counts as known. One that does not answer is only
// remembered so that it counts towards a mass removal.
func (m *missingInstances) isShown(a *absence) bool { return m.frozen || a.health != Unreachable }
