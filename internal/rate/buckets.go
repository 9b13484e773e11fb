package rate

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxBuckets limits the memory to about 1.5 MB. When all buckets are in use, further callers share one. So a
// caller cannot escape its limit by using many names.
const maxBuckets = 10_000

// buckets holds a token bucket for each recent caller.
type buckets[K comparable] struct {
	mu        sync.Mutex
	limiters  map[K]*rate.Limiter
	shared    map[Limit]*rate.Limiter
	sweepSize int // number of buckets at which idle ones are dropped
	lastSweep time.Time
}

const (
	minSweepSize  = 64
	sweepInterval = time.Second // so that many names do not slow down all calls
)

func newBuckets[K comparable]() *buckets[K] {
	return &buckets[K]{limiters: map[K]*rate.Limiter{}, shared: map[Limit]*rate.Limiter{}, sweepSize: minSweepSize}
}

// take takes a token from a bucket. If there is none, it returns the time until the next one.
func (b *buckets[K]) take(key K, limit Limit) time.Duration {
	_, wait := b.reserve(key, limit, time.Now())
	return wait
}

// reserve takes a token that can be returned with CancelAt at the same time. A rate of 0 means no limit.
func (b *buckets[K]) reserve(key K, limit Limit, now time.Time) (*rate.Reservation, time.Duration) {
	if limit.Rate == 0 {
		return &rate.Reservation{}, 0
	}
	token := b.limiter(key, limit).ReserveN(now, 1)
	wait := token.DelayFrom(now)
	if wait > 0 {
		token.CancelAt(now)
	}
	return token, wait
}

// limiter returns the bucket of a key, which starts full.
func (b *buckets[K]) limiter(key K, limit Limit) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.limiters[key]; ok {
		return found
	}
	if len(b.limiters) >= b.sweepSize && time.Since(b.lastSweep) >= sweepInterval {
		b.dropIdle()
	}
	if len(b.limiters) >= maxBuckets {
		if b.shared[limit] == nil {
			b.shared[limit] = limit.bucket()
		}
		return b.shared[limit]
	}
	made := limit.bucket()
	b.limiters[key] = made
	return made
}

// dropIdle removes full buckets, which are as good as new ones. The next sweep is due at twice the remaining
// number.
func (b *buckets[K]) dropIdle() {
	for key, bucket := range b.limiters {
		if bucket.Tokens() >= float64(bucket.Burst()) {
			delete(b.limiters, key)
		}
	}
	b.lastSweep = time.Now()
	b.sweepSize = min(max(minSweepSize, 2*len(b.limiters)), maxBuckets)
}
