package rate

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxBuckets is how many are kept, about 1.5 MB of them. Whoever comes when there are as many, all
// in use, shares one with others who do: a caller cannot get rid of his own by many names.
const maxBuckets = 10_000

// buckets are those of everybody who called lately.
type buckets[K comparable] struct {
	mu     sync.Mutex
	of     map[K]*rate.Limiter
	shared map[Limit]*rate.Limiter
	sweep  int // at how many of them the idle ones are dropped
	swept  time.Time
}

const (
	firstSweep = 64
	sweepPause = time.Second // so that many names do not make all calls slow
)

func newBuckets[K comparable]() *buckets[K] {
	return &buckets[K]{of: map[K]*rate.Limiter{}, shared: map[Limit]*rate.Limiter{}, sweep: firstSweep}
}

// take takes a token out of a bucket. When there is none, it says how long one takes to come.
func (b *buckets[K]) take(key K, limit Limit) time.Duration {
	_, wait := b.reserve(key, limit, time.Now())
	return wait
}

// reserve is take, of a token that can be given back with CancelAt, by the same time. A limit
// without a rate is none.
func (b *buckets[K]) reserve(key K, limit Limit, now time.Time) (*rate.Reservation, time.Duration) {
	if limit.Rate == 0 {
		return &rate.Reservation{}, 0
	}
	token := b.at(key, limit).ReserveN(now, 1)
	wait := token.DelayFrom(now)
	if wait > 0 {
		token.CancelAt(now)
	}
	return token, wait
}

// at is the bucket of a key, which is made full.
func (b *buckets[K]) at(key K, limit Limit) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.of[key]; ok {
		return found
	}
	if len(b.of) >= b.sweep && time.Since(b.swept) >= sweepPause {
		b.drop()
	}
	if len(b.of) >= maxBuckets {
		if b.shared[limit] == nil {
			b.shared[limit] = limit.bucket()
		}
		return b.shared[limit]
	}
	made := limit.bucket()
	b.of[key] = made
	return made
}

// drop forgets the buckets that are full, which are as good as new ones. The next time comes when
// there are twice as many as are left.
func (b *buckets[K]) drop() {
	for key, bucket := range b.of {
		if bucket.Tokens() >= float64(bucket.Burst()) {
			delete(b.of, key)
		}
	}
	b.swept = time.Now()
	b.sweep = min(max(firstSweep, 2*len(b.of)), maxBuckets)
}
