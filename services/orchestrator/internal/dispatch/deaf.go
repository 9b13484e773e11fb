package dispatch

import (
	"maps"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
)

// deafFactor is for how much longer than it took to find out an instance that does not
// answer is passed over: one that refuses connections costs nothing and is asked again at
// once, one that swallows them is left alone for a while.
const deafFactor = 3

// suspicion is for how long an instance is passed over that went silent in a step: it takes
// connections and steps, and does nothing with them.
const suspicion = 5 * time.Second

// deaf remembers the instances that do not answer, so that steps do not wait for them
// one after the other. Safe for concurrent use.
type deaf struct {
	mu    sync.Mutex
	known map[run]absence
}

// run is one run of an instance.
type run struct {
	registry.Key
	incarnation int64
}

func runOf(in registry.Instance) run { return run{in.Key(), in.Incarnation} }

type absence struct {
	until time.Time
	err   error
}

func newDeaf() *deaf { return &deaf{known: map[run]absence{}} }

// forget has an instance asked again that refused a step, for it has just ended one.
func (d *deaf) forget(in registry.Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if refused(d.known[runOf(in)].err) {
		delete(d.known, runOf(in))
	}
}

// note says for how long an instance is passed over, and why.
func (d *deaf) note(in registry.Instance, pause time.Duration, err error) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.known, func(_ run, a absence) bool { return now.After(a.until) })
	d.known[runOf(in)] = absence{now.Add(pause), err}
}

// of are the runs of an agent's instances that are not asked now, and why.
func (d *deaf) of(agent string) map[run]error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var silent map[run]error
	for who, a := range d.known {
		if who.Agent == agent && time.Now().Before(a.until) {
			if silent == nil {
				silent = map[run]error{}
			}
			silent[who] = a.err
		}
	}
	return silent
}
