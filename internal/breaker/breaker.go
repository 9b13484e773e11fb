// Package breaker implements the circuit breaker of the mesh (contract OC-34).
package breaker

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// These limits apply to every breaker.
const (
	MaxFailures  = 3                // failures in a row that open a breaker
	OpenDuration = 10 * time.Second // how long a breaker stays open before it allows a trial
)

// Breaker opens after three failures in a row and then rejects every call for 10 seconds. After that it allows one
// trial call. The breaker closes if the trial succeeds and opens again if it fails. Breaker is safe for concurrent
// use.
type Breaker struct {
	breaker   *gobreaker.TwoStepCircuitBreaker[struct{}]
	openUntil atomic.Int64 // Unix nanoseconds, set whenever the breaker opens
}

// Result says what a call revealed about the health of its target.
type Result int

// The results.
const (
	Inconclusive Result = iota // the caller gave up, or the target reported that it is busy
	Success
	Failure
)

var (
	errFailure      = errors.New("failure")
	errInconclusive = errors.New("inconclusive")
)

// toError returns the result as the error that gobreaker expects.
func (r Result) toError() error { return [...]error{errInconclusive, nil, errFailure}[r] }

// New returns a closed breaker. The breaker calls changed, unless it is nil, whenever it opens or closes. changed
// must return quickly and must not use the breaker.
func New(changed func(open bool)) *Breaker {
	b := &Breaker{}
	b.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1, Timeout: OpenDuration,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= MaxFailures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errInconclusive) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.openUntil.Store(time.Now().Add(OpenDuration).UnixNano())
			}
			if changed != nil && to != gobreaker.StateHalfOpen {
				changed(to == gobreaker.StateOpen)
			}
		},
	})
	return b
}

// Try asks for permission to make one call. If the call is allowed, the caller must call done once with the
// result. Otherwise done is nil, and wait is how long the breaker stays open (0 while a trial runs).
func (b *Breaker) Try() (done func(Result), wait time.Duration) {
	report, err := b.breaker.Allow()
	if err != nil {
		return nil, max(0, time.Until(time.Unix(0, b.openUntil.Load())))
	}
	return func(r Result) { report(r.toError()) }, 0
}

// IsOpen reports whether Try would reject a call now.
func (b *Breaker) IsOpen() bool {
	return b.breaker.State() == gobreaker.StateOpen || b.IsTrialRunning()
}

// IsTrialRunning reports whether a trial call is running.
func (b *Breaker) IsTrialRunning() bool {
	if b.breaker.State() != gobreaker.StateHalfOpen {
		return false
	}
	n := b.breaker.Counts()
	return n.Requests > n.TotalExclusions
}

// IsHealthy reports whether the breaker is closed and the last call did not fail.
func (b *Breaker) IsHealthy() bool {
	return b.breaker.State() == gobreaker.StateClosed && b.breaker.Counts().ConsecutiveFailures == 0
}
