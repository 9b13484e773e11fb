package memory

import (
	"maps"
	"time"
)

// Kinds of items that an erasure removes.
const (
	KindSessions      = "sessions"
	KindMessages      = "messages"
	KindTurns         = "turns"
	KindStateKeys     = "state_keys"
	KindArtifacts     = "artifacts"      // versions
	KindArtifactBytes = "artifact_bytes" // bytes of these versions
	KindWaiting       = "waiting_calls"  // turns with waiting calls
	KindUserState     = "state_keys_of_user"
	KindUserArtifacts = "artifacts_of_user"
	KindUserBytes     = "artifact_bytes_of_user"
)

// ErasureReport says what was removed of a session or user, and what remains (guarantee S24). It is stored with the
// tombstone, so every later call returns the same report.
type ErasureReport struct {
	Session, User string           // exactly one of them is set
	Removed       map[string]int64 // counts by kind, without zeros
	Remainders    []Remainder
	RequestedBy   string    // caller that began the erasure
	Began, Ended  time.Time // (zero means unknown)
}

// Remainder names data that an erasure leaves in place or cannot reach.
type Remainder struct {
	What, Why string
	Until     time.Time // (zero means unknown)
}

// Add adds counts of removed items.
func (e *ErasureReport) Add(removed map[string]int64) {
	all := maps.Clone(e.Removed)
	if all == nil {
		all = map[string]int64{}
	}
	for kind, n := range removed {
		if all[kind] += n; all[kind] == 0 {
			delete(all, kind)
		}
	}
	e.Removed = all
}

// UserErasure is the progress of the erasure of a user.
type UserErasure struct {
	Sessions []string      // remaining sessions, at most MaxPage; the caller deletes them and calls again
	Report   ErasureReport // report on the shared data, set once no session is left
}

// SessionRemainder returns the data that every store keeps of a deleted session.
func SessionRemainder(deleted time.Time) Remainder {
	return Remainder{
		What:  "the id of the session, the last epoch and these counts",
		Why:   "they keep late writers out, and answer a repeated call",
		Until: deleted.Add(Retention),
	}
}

// UserRemainder returns the data that every store keeps of an erased user.
func UserRemainder(erased time.Time) Remainder {
	return Remainder{
		What:  "the ids of the user and of the sessions",
		Why:   "they keep late writers out",
		Until: erased.Add(Retention),
	}
}
