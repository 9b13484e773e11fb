package failure

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// The circuit breakers of the mesh (contract OC-34).
const (
	CircuitFailures = 3                // in a row, after which something is left alone
	CircuitPause    = 10 * time.Second // for so long; then one try decides
)

// Circuit has something left alone for 10 s that failed three times in a row. Then one try
// is allowed, which closes the circuit when it works and opens it again when it does not. Safe
// for concurrent use.
type Circuit struct {
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	until   atomic.Int64 // when it was opened last, it is open until then, in Unix nanoseconds
}

// Verdict is what a try shows of what was tried.
type Verdict int

// The verdicts.
const (
	Unclear Verdict = iota // nothing: the caller gave up, or it said that it is busy
	Works
	Broken
)

var (
	errBroken  = errors.New("broken")
	errUnclear = errors.New("unclear")
)

// err is the verdict as the library takes it.
func (v Verdict) err() error { return [...]error{errUnclear, nil, errBroken}[v] }

// NewCircuit returns a closed circuit. changed, which may be nil, is told when it opens and when
// it closes; it must be quick and may not use the circuit.
func NewCircuit(changed func(open bool)) *Circuit {
	c := &Circuit{}
	c.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1, Timeout: CircuitPause,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= CircuitFailures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errUnclear) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				c.until.Store(time.Now().Add(CircuitPause).UnixNano())
			}
			if changed != nil && to != gobreaker.StateHalfOpen {
				changed(to == gobreaker.StateOpen)
			}
		},
	})
	return c
}

// Try asks for leave. With it, the caller calls done once, with what came of it; while the one
// try runs that decides, nobody else gets leave. Without leave done is nil, and left says how
// long the circuit stays open: 0 during that one try.
func (c *Circuit) Try() (done func(Verdict), left time.Duration) {
	tell, err := c.breaker.Allow()
	if err != nil {
		return nil, c.left()
	}
	return func(v Verdict) { tell(v.err()) }, 0
}

// Open reports whether Try would be refused now.
func (c *Circuit) Open() bool {
	return c.breaker.State() == gobreaker.StateOpen || c.OnTrial()
}

// OnTrial reports whether the one try runs that decides.
func (c *Circuit) OnTrial() bool {
	if c.breaker.State() != gobreaker.StateHalfOpen {
		return false
	}
	n := c.breaker.Counts()
	return n.Requests > n.TotalExclusions
}

// Quiet reports whether nothing speaks against what is tried: it worked the last time.
func (c *Circuit) Quiet() bool {
	return c.breaker.State() == gobreaker.StateClosed && c.breaker.Counts().ConsecutiveFailures == 0
}

func (c *Circuit) left() time.Duration {
	return max(0, time.Until(time.Unix(0, c.until.Load())))
}
