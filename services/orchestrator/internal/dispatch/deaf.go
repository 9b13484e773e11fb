package dispatch

import (
	"maps"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/registry"
)

// deafFactor is for how much longer than it took to find out an instance that does not
// answer is passed over: one that refuses connections costs nothing and is asked again at
// once, one that swallows them is left alone for a while.
const deafFactor = 3

// deaf remembers the instances that cannot be reached, so that steps do not wait for them
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

type absence struct {
	until time.Time
	err   error
}

func newDeaf() *deaf { return &deaf{known: map[run]absence{}} }

// note says that an instance could not be reached, and how long it took to find out.
func (d *deaf) note(in registry.Instance, took time.Duration, err error) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.known, func(_ run, a absence) bool { return now.After(a.until) })
	d.known[run{in.Key(), in.Incarnation}] = absence{now.Add(deafFactor * took), err}
}

// check is why an instance is not asked now; nil when it may be.
func (d *deaf) check(in registry.Instance) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a, ok := d.known[run{in.Key(), in.Incarnation}]; ok && time.Now().Before(a.until) {
		return a.err
	}
	return nil
}
