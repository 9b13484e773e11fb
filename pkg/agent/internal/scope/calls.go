package scope

import "sync"

// Calls numbers the model calls and tool calls of the agents of a step. It returns each number once, and the same
// numbers in every attempt. Agents that run one after the other share one Calls. Agents that run at the same time
// have a lane each: the lanes take the following numbers in turns.
type Calls struct {
	parent      *Calls // whose lane it is (nil for the step's own)
	base        int    // number of parent after which the lanes begin
	lane, lanes int
	last        int // latest number that was returned

	mu            sync.Mutex
	highestJoined int // by lanes; the next number is a higher one
}

// Next returns the next number of the step.
func (c *Calls) Next() int {
	c.continueAfterLanes()
	c.last++
	return c.toStep(c.last)
}

// toStep converts a number of c to the number in the step.
func (c *Calls) toStep(n int) int {
	if c.parent == nil {
		return n
	}
	return c.parent.toStep(c.toParent(n))
}

// toParent converts a number of a lane to the number in its parent.
func (c *Calls) toParent(n int) int { return c.base + (n-1)*c.lanes + c.lane + 1 }

// Split returns one of several concurrent lanes. Do not call Next on c until all lanes have been joined.
func (c *Calls) Split(lane, lanes int) *Calls {
	return &Calls{parent: c, base: c.last, lane: lane, lanes: lanes}
}

// Concurrent returns how many lanes there are, with the lanes of the parents.
func (c *Calls) Concurrent() int {
	n := 1
	for ; c != nil; c = c.parent {
		n *= max(1, c.lanes)
	}
	return n
}

// Join ends a lane, and returns its last number in the numbering of its parent.
func (c *Calls) Join() int {
	c.continueAfterLanes()
	if c.last == 0 {
		return c.base
	}
	last := c.toParent(c.last)
	c.parent.Skip(last)
	return last
}

// JoinAll ends the lanes of c.
func (c *Calls) JoinAll(lanes ...*Calls) {
	for _, lane := range lanes {
		lane.Join()
	}
	c.continueAfterLanes()
}

// Skip leaves out the numbers up to last. Lanes call it concurrently.
func (c *Calls) Skip(last int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highestJoined = max(c.highestJoined, last)
}

// continueAfterLanes continues the numbering after the lanes that were joined.
func (c *Calls) continueAfterLanes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, c.highestJoined)
}
