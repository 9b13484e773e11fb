// Package jitter varies pauses, so that many callers do not act at the same moment.
package jitter

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// source returns a random number below n. Tests replace it (nil means math/rand).
var source atomic.Pointer[func(n int64) int64]

// Below returns a random duration below n, which must be above zero.
func Below(n time.Duration) time.Duration {
	if replaced := source.Load(); replaced != nil {
		return time.Duration((*replaced)(int64(n)))
	}
	return rand.N(n) //nolint:gosec // it spreads load, and hides nothing
}

// Replace makes Below use another source, for tests whose runs must be repeatable.
func Replace(with func(n int64) int64) { source.Store(&with) }
