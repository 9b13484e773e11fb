package trust

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxUsed is how many signatures of one sort of client are remembered at once. It bounds
// the memory of a gate to some megabytes.
const maxUsed = 1 << 16

// replays remembers the signatures that were used, each for as long as its time allows
// another use. Strangers have a memory of their own: they cost nothing to invent, and must
// not use up that of the clients who are known.
type replays struct {
	mu                 sync.Mutex
	ofStrangers, known minutes
}

func newReplays() *replays { return &replays{ofStrangers: minutes{}, known: minutes{}} }

// use takes a signature that Verify found right at the same now. One that was used before
// is policy_security. One that there is no room for is policy_rate_limit: to forget another
// for it would let that one be used again.
func (r *replays) use(s Signature, known bool, now time.Time) error {
	const op = "trust.replay"
	minute, id := s.Time.Unix()/60, sha256.Sum256([]byte(s.String()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ofStrangers.forget(now)
	r.known.forget(now)
	if r.ofStrangers.has(minute, id) || r.known.has(minute, id) {
		return failure.New(failure.PolicySecurity, op, "the signature was used before; sign each request anew")
	}
	pool := r.ofStrangers
	if known {
		pool = r.known
	}
	if pool.size() >= maxUsed {
		return failure.Newf(failure.PolicyRateLimit, op, "too many signed requests in %v; try again later", 2*Window)
	}
	pool.add(minute, id)
	return nil
}

// minutes are digests of signatures by the minute of their time, which the same signature
// always has: a dozen of minutes covers the window.
type minutes map[int64]map[[sha256.Size]byte]struct{}

func (m minutes) has(minute int64, id [sha256.Size]byte) bool {
	_, ok := m[minute][id]
	return ok
}

func (m minutes) add(minute int64, id [sha256.Size]byte) {
	if m[minute] == nil {
		m[minute] = map[[sha256.Size]byte]struct{}{}
	}
	m[minute][id] = struct{}{}
}

func (m minutes) size() int {
	n := 0
	for _, ids := range m {
		n += len(ids)
	}
	return n
}

// forget drops the minutes of which no signature passes Verify any more.
func (m minutes) forget(now time.Time) {
	for minute := range m {
		if end := time.Unix((minute+1)*60, 0); now.Sub(end) > Window {
			delete(m, minute)
		}
	}
}
