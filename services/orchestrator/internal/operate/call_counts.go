package operate

import (
	"sync"

	"github.com/troupe-dev/troupe/internal/registry"
)

// callCounts counts the pending calls to the worker of each instance. Safe for concurrent use.
type callCounts struct {
	mu     sync.Mutex
	counts map[registry.Key]int
}

func newCallCounts() *callCounts { return &callCounts{counts: map[registry.Key]int{}} }

// add adds n to the number of pending calls to an instance, and returns the new number.
func (c *callCounts) add(key registry.Key, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[key] += n
	if c.counts[key] == 0 {
		delete(c.counts, key)
	}
	return c.counts[key]
}
