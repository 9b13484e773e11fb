package memory

import (
	"maps"
	"time"
)

// Kinds of what an erasure removes.
const (
	KindSessions      = "sessions"
	KindMessages      = "messages"
	KindTurns         = "turns"
	KindStateKeys     = "state_keys"
	KindArtifacts     = "artifacts"      // versions
	KindArtifactBytes = "artifact_bytes" // of their content
	KindWaiting       = "waiting_calls"  // turns whose calls wait
	KindUserState     = "state_keys_of_user"
	KindUserArtifacts = "artifacts_of_user"
	KindUserBytes     = "artifact_bytes_of_user"
)

// Erasure says what was removed of a session or of a user, and what remains (S24). It is kept
// with the mark of what was erased, and is the same whoever asks again.
type Erasure struct {
	Session, User string           // one of them
	Removed       map[string]int64 // how many of a kind; none with 0
	Remains       []Remainder
	By            string    // who asked first
	Began, Ended  time.Time // zero when it is not known
}

// Remainder is what an erasure leaves, or cannot reach.
type Remainder struct {
	What, Why string
	Until     time.Time // zero: not known
}

// Add counts what was removed of other kinds, or of the same.
func (e *Erasure) Add(removed map[string]int64) {
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

// ErasedUser is how far the erasure of a user is.
type ErasedUser struct {
	Sessions []string // that the user still has, at most MaxPage: delete them and ask again
	Erasure  Erasure  // of what they shared, once there are none
}

// SessionRemainder is what remains of a deleted session in every store.
func SessionRemainder(deleted time.Time) Remainder {
	return Remainder{
		What:  "the id of the session, the last epoch and these counts",
		Why:   "they keep late writers out, and answer a repeated call",
		Until: deleted.Add(Retention),
	}
}

// UserRemainder is what remains of an erased user in every store.
func UserRemainder(erased time.Time) Remainder {
	return Remainder{
		What:  "the ids of the user and of the sessions",
		Why:   "they keep late writers out",
		Until: erased.Add(Retention),
	}
}
