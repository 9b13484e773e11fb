package agent

import (
	"sync"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// counter numbers the model calls and tool calls of the agents of a step, each number once
// and in every attempt the same. Agents that run one after the other share one; of those that
// run beside each other each has a lane of its own between the numbers of the others.
type counter struct {
	up          *counter // whose lane it is; nil: the step's own
	base        int      // number of up behind which the lanes begin
	lane, lanes int
	last        int // that was given out

	mu      sync.Mutex
	reached int // by lanes: what is given out next comes behind it
}

// next is a number of the step.
func (c *counter) next() int {
	c.settle()
	c.last++
	return c.global(c.last)
}

func (c *counter) global(n int) int {
	if c.up == nil {
		return n
	}
	return c.up.global(c.above(n))
}

// above is the number of a lane as its upper counter counts: lanes take turns.
func (c *counter) above(n int) int { return c.base + (n-1)*c.lanes + c.lane + 1 }

// split returns a lane of those that begin now. No number is given out here before they have
// been joined.
func (c *counter) split(lane, lanes int) *counter {
	return &counter{up: c, base: c.last, lane: lane, lanes: lanes}
}

// beside is how many lanes there are, those of the lanes above included.
func (c *counter) beside() int {
	n := 1
	for ; c != nil; c = c.up {
		n *= max(1, c.lanes)
	}
	return n
}

// join ends a lane, and returns up to where it got as its upper counter counts.
func (c *counter) join() int {
	c.settle()
	if c.last == 0 {
		return c.base
	}
	last := c.above(c.last)
	c.up.reach(last)
	return last
}

// reach has the numbers up to last left out. Lanes call it beside each other.
func (c *counter) reach(last int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached = max(c.reached, last)
}

// settle goes on behind the lanes that were joined.
func (c *counter) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, c.reached)
}

// calls are those of one agent. Its loop counts them from 1; the journal and the keys have
// the numbers of the step.
type calls struct {
	execution.Journal
	count   *counter
	turnID  string
	turn    int // in the session
	step    int
	apart   bool  // what the agent says is no part of what the step says
	numbers []int // of the step, by those of the loop
}

// number is that of the step. The loop names each of its own first in order.
func (c *calls) number(own int) int {
	for len(c.numbers) < own {
		c.numbers = append(c.numbers, c.count.next())
	}
	return c.numbers[own-1]
}

// key is the idempotency key of a call: the same in all attempts.
func (c *calls) key(own int) string { return stepjournal.CallKey(c.turnID, c.step, c.number(own)) }

// id is what who answers it calls a call that waits.
func (c *calls) id(own int) string { return pendingcall.ID(c.turn, c.step, c.number(own)) }

// Replay implements execution.Journal.
func (c *calls) Replay(own int, phase execution.Phase) (execution.Entry, bool) {
	e, ok := c.Journal.Replay(c.number(own), phase)
	e.Number = own
	return e, ok
}

// Record implements execution.Journal.
func (c *calls) Record(e execution.Entry) {
	e.Number = c.number(e.Number)
	e.Aside = e.Aside || c.apart
	c.Journal.Record(e)
}

// seen are the calls as a loop gets them: sealed, if those of the step are.
func (c *calls) seen() execution.Journal {
	if s, ok := c.Journal.(stepjournal.Sealed); ok {
		return sealedCalls{c, s}
	}
	return c
}

// sealedCalls are those of an agent whose step is over and is run again.
type sealedCalls struct {
	*calls
	of stepjournal.Sealed
}

// Stray implements stepjournal.Sealed.
func (s sealedCalls) Stray(now execution.Entry) error {
	now.Number = s.number(now.Number)
	return s.of.Stray(now)
}

// Asked implements stepjournal.Sealed.
func (s sealedCalls) Asked(own int, digest string) { s.of.Asked(s.number(own), digest) }
