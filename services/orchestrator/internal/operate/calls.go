package operate

import (
	"sync"

	"github.com/troupe-dev/troupe/internal/registry"
)

// calls counts the calls that wait for the worker of each instance. Safe for concurrent use.
type calls struct {
	mu sync.Mutex
	n  map[registry.Key]int
}

func newCalls() *calls { return &calls{n: map[registry.Key]int{}} }

// add adds to the calls that wait for an instance, and returns how many do.
func (c *calls) add(key registry.Key, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[key] += n
	if c.n[key] == 0 {
		delete(c.n, key)
	}
	return c.n[key]
}
