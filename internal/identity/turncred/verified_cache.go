package turncred

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxVerifiedTurns limits the number of credentials in the cache. Each evicted credential costs one more verification.
const maxVerifiedTurns = 4096

// verifiedCache maps hashes of verified credentials to their turns, so that a credential is verified only once. It
// holds only valid credentials, so unauthenticated callers cannot fill it. It is safe for concurrent use.
type verifiedCache struct {
	mu    sync.RWMutex
	turns map[[sha256.Size]byte]cachedTurn
}

type cachedTurn struct {
	turn    Turn
	expires time.Time
}

func (v *verifiedCache) findTurn(credential string, now time.Time) (Turn, bool) {
	key := sha256.Sum256([]byte(credential))
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, ok := v.turns[key]
	return e.turn, ok && now.Before(e.expires)
}

func (v *verifiedCache) addTurn(credential string, e cachedTurn, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.turns) >= maxVerifiedTurns {
		for key, old := range v.turns {
			if !now.Before(old.expires) {
				delete(v.turns, key)
			}
		}
	}
	for key := range v.turns { // evict arbitrary entries if none has expired
		if len(v.turns) < maxVerifiedTurns {
			break
		}
		delete(v.turns, key)
	}
	v.turns[sha256.Sum256([]byte(credential))] = e
}
