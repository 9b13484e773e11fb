package scope

import "sync"

// CallNumbers assigns numbers to the model calls and tool calls of a step's agents. It returns each number once,
// and the same numbers in every attempt. Agents that run one after the other share one CallNumbers. Agents that
// run at the same time have one lane each. The lanes take the following numbers in turns.
type Calls struct {
	parent      *Calls // the numbers that this lane belongs to (nil for the step's own)
	base        int    // number of parent after which the lanes begin
	lane, lanes int
	last        int // highest number returned so far

	mu            sync.Mutex
	highestJoined int // highest number used by joined lanes; Next returns higher ones
}

// Next returns the next number of the step.
func (c *Calls) Next() int {
	c.continueAfterLanes()
	c.last++
	return c.toStep(c.last)
}

// toStep converts a number of c to the number in the whole step.
func (c *Calls) toStep(n int) int {
	if c.parent == nil {
		return n
	}
	return c.parent.toStep(c.toParent(n))
}

// toParent converts a number of a lane to the number in its parent.
func (c *Calls) toParent(n int) int { return c.base + (n-1)*c.lanes + c.lane + 1 }

// NewLane returns one of several concurrent lanes. Do not call Next on c until all lanes have been joined.
func (c *Calls) Split(lane, lanes int) *Calls {
	return &Calls{parent: c, base: c.last, lane: lane, lanes: lanes}
}

// LaneCount returns how many lanes run at the same time, including the lanes of all parents.
func (c *Calls) Concurrent() int {
	n := 1
	for ; c != nil; c = c.parent {
		n *= max(1, c.lanes)
	}
	return n
}

// Join ends a lane and returns its last number, converted to the numbering of its parent.
func (c *Calls) Join() int {
	c.continueAfterLanes()
	if c.last == 0 {
		return c.base
	}
	last := c.toParent(c.last)
	c.parent.Skip(last)
	return last
}

// JoinAll ends all given lanes of c.
func (c *Calls) JoinAll(lanes ...*Calls) {
	for _, lane := range lanes {
		lane.Join()
	}
	c.continueAfterLanes()
}

// Skip leaves out the numbers up to last. It is safe for concurrent use by lanes.
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
