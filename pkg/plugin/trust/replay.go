package trust

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxUsed limits how many signatures a usedSignatures holds, for strangers and for known clients each. It bounds
// the memory of a gate to a few megabytes.
const maxUsed = 1 << 16

// usedSignatures holds used signatures for as long as Verify would accept them again. Signatures of strangers are
// counted separately, because anyone can make any number of new keys. They must not use up the space for known
// clients.
type usedSignatures struct {
	mu               sync.Mutex
	strangers, known digestsByMinute
}

func newUsedSignatures() *usedSignatures {
	return &usedSignatures{strangers: digestsByMinute{}, known: digestsByMinute{}}
}

// record stores a signature that Verify accepted at the time now. It returns policy_security if the signature was
// used before. It returns policy_rate_limit if there is no space, because a signature that is dropped too early
// could be used again.
func (u *usedSignatures) record(s Signature, known bool, now time.Time) error {
	const op = "trust.replay"
	minute, id := s.Time.Unix()/60, sha256.Sum256([]byte(s.String()))
	u.mu.Lock()
	defer u.mu.Unlock()
	u.strangers.dropExpired(now)
	u.known.dropExpired(now)
	if u.strangers.has(minute, id) || u.known.has(minute, id) {
		return failure.New(failure.PolicySecurity, op, "the signature was used before; sign each request anew")
	}
	pool := u.strangers
	if known {
		pool = u.known
	}
	if pool.size() >= maxUsed {
		return failure.Newf(failure.PolicyRateLimit, op, "too many signed requests in %v; try again later", 2*Window)
	}
	pool.add(minute, id)
	return nil
}

// digestsByMinute holds digests of signatures, grouped by the minute in which they were made. About a dozen
// minutes cover the window.
type digestsByMinute map[int64]map[[sha256.Size]byte]struct{}

func (m digestsByMinute) has(minute int64, id [sha256.Size]byte) bool {
	_, ok := m[minute][id]
	return ok
}

func (m digestsByMinute) add(minute int64, id [sha256.Size]byte) {
	if m[minute] == nil {
		m[minute] = map[[sha256.Size]byte]struct{}{}
	}
	m[minute][id] = struct{}{}
}

func (m digestsByMinute) size() int {
	n := 0
	for _, ids := range m {
		n += len(ids)
	}
	return n
}

// dropExpired drops the minutes whose signatures Verify no longer accepts.
func (m digestsByMinute) dropExpired(now time.Time) {
	for minute := range m {
		if end := time.Unix((minute+1)*60, 0); now.Sub(end) > Window {
			delete(m, minute)
		}
	}
}
