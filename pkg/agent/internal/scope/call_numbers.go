package scope

import "sync"

// CallNumbers assigns numbers to the model calls and tool calls of a step's agents. It returns each number once,
// and the same numbers in every attempt. Agents that run one after the other share one CallNumbers. Agents that
// run at the same time have one lane each. The lanes take the following numbers in turns.
type CallNumbers struct {
	parent          *CallNumbers // the numbers that this lane belongs to (nil for the step's own)
	offset          int          // number of the parent after which the lanes begin
	lane, laneCount int
	lastNumber      int // highest number returned so far

	mu            sync.Mutex
	highestJoined int // highest number used by joined lanes; Next returns higher ones
}

// Next returns the next number of the step.
func (c *CallNumbers) Next() int {
	c.continueAfterLanes()
	c.lastNumber++
	return c.toStep(c.lastNumber)
}

// toStep converts a number of c to the number in the whole step.
func (c *CallNumbers) toStep(n int) int {
	if c.parent == nil {
		return n
	}
	return c.parent.toStep(c.toParent(n))
}

// toParent converts a number of a lane to the number in its parent.
func (c *CallNumbers) toParent(n int) int { return c.offset + (n-1)*c.laneCount + c.lane + 1 }

// NewLane returns one of several concurrent lanes. Do not call Next on c until all lanes have been joined.
func (c *CallNumbers) NewLane(lane, lanes int) *CallNumbers {
	return &CallNumbers{parent: c, offset: c.lastNumber, lane: lane, laneCount: lanes}
}

// LaneCount returns how many lanes run at the same time, including the lanes of all parents.
func (c *CallNumbers) LaneCount() int {
	n := 1
	for ; c != nil; c = c.parent {
		n *= max(1, c.laneCount)
	}
	return n
}

// Join ends a lane and returns its last number, converted to the numbering of its parent.
func (c *CallNumbers) Join() int {
	c.continueAfterLanes()
	if c.lastNumber == 0 {
		return c.offset
	}
	last := c.toParent(c.lastNumber)
	c.parent.Skip(last)
	return last
}

// JoinAll ends all given lanes of c.
func (c *CallNumbers) JoinAll(lanes ...*CallNumbers) {
	for _, lane := range lanes {
		lane.Join()
	}
	c.continueAfterLanes()
}

// Skip leaves out the numbers up to last. It is safe for concurrent use by lanes.
func (c *CallNumbers) Skip(last int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highestJoined = max(c.highestJoined, last)
}

// continueAfterLanes continues the numbering after the lanes that were joined.
func (c *CallNumbers) continueAfterLanes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastNumber = max(c.lastNumber, c.highestJoined)
}
