package rate

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxBuckets limits the memory to about 1.5 MB. When all buckets are in use, further callers share one bucket, so
// a caller cannot escape its limit by using many names.
const maxBuckets = 10_000

// buckets holds a token bucket for each recent key, such as a caller or an address.
type buckets[K comparable] struct {
	mu        sync.Mutex
	limiters  map[K]*rate.Limiter
	shared    map[Limit]*rate.Limiter
	sweepSize int // number of buckets at which idle ones are dropped
	lastSweep time.Time
}

const (
	minSweepSize  = 64
	sweepInterval = time.Second // bounds the cost of sweeps when there are many names
)

func newBuckets[K comparable]() *buckets[K] {
	return &buckets[K]{limiters: map[K]*rate.Limiter{}, shared: map[Limit]*rate.Limiter{}, sweepSize: minSweepSize}
}

// take takes a token from the key's bucket. If the bucket is empty, take returns the time until the next token.
func (b *buckets[K]) take(key K, limit Limit) time.Duration {
	_, wait := b.reserve(key, limit, time.Now())
	return wait
}

// reserve takes a token from the key's bucket, or returns the time until the next one. A token can be returned by
// calling CancelAt with the same now. A rate of 0 means no limit.
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

// limiter returns the bucket of a key. A new bucket starts full.
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
			b.shared[limit] = limit.newBucket()
		}
		return b.shared[limit]
	}
	made := limit.newBucket()
	b.limiters[key] = made
	return made
}

// dropIdle removes full buckets, because a new bucket starts full as well. The next sweep is due when the number
// of buckets has doubled.
func (b *buckets[K]) dropIdle() {
	for key, bucket := range b.limiters {
		if bucket.Tokens() >= float64(bucket.Burst()) {
			delete(b.limiters, key)
		}
	}
	b.lastSweep = time.Now()
	b.sweepSize = min(max(minSweepSize, 2*len(b.limiters)), maxBuckets)
}
