package turncred

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxVerified is how many credentials are remembered. One more turn than that pays for one more
// verification, and nothing else.
const maxVerified = 4096

// verified are credentials that were verified, by their hashes: a turn pays for it once. Only
// those that prove something are in it, so strangers cannot fill it. Safe for concurrent use.
type verified struct {
	mu  sync.RWMutex
	all map[[sha256.Size]byte]expiring
}

type expiring struct {
	turn  Turn
	until time.Time
}

func (v *verified) find(credential string, now time.Time) (Turn, bool) {
	key := sha256.Sum256([]byte(credential))
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, ok := v.all[key]
	return e.turn, ok && now.Before(e.until)
}

func (v *verified) keep(credential string, e expiring, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.all) >= maxVerified {
		for key, old := range v.all {
			if !now.Before(old.until) {
				delete(v.all, key)
			}
		}
	}
	for key := range v.all { // any of them, when all still hold
		if len(v.all) < maxVerified {
			break
		}
		delete(v.all, key)
	}
	v.all[sha256.Sum256([]byte(credential))] = e
}
