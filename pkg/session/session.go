// Package session is the durable side of a conversation: the session, its turns, and how
// they end.
package session

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Limits of a session (guarantees S9).
const (
	MaxMessages = 10_000
	MaxBytes    = 64 << 20
)

// State says whether a session takes a turn (contract C-1). A session that is not known
// is made by its first turn.
type State string

// The states of a session.
const (
	Ready         State = "ready"
	Busy          State = "busy"
	InputRequired State = "input_required" // the next turn answers
	Failed        State = "failed"         // takes the next turn
)

// Outcome says how a turn ended.
type Outcome string

// The outcomes of a turn; the zero Outcome is that of an open one.
const (
	OutcomeOpen          Outcome = ""
	OutcomeCompleted     Outcome = "completed"
	OutcomeFailed        Outcome = "failed"
	OutcomeCancelled     Outcome = "cancelled"
	OutcomeInputRequired Outcome = "input_required"
)

// Ref names a session of a tenant.
type Ref struct {
	Tenant  string
	Session string
}

// Session is what is known of one conversation.
type Session struct {
	ID           string
	State        State
	Turns        int
	Messages     int64
	Bytes        int64
	Created      time.Time
	LastActivity time.Time
	OpenTurn     string // turn id; empty when none is open
	LastTrace    string
}

// Turn is one user input carried to a result.
type Turn struct {
	ID       string
	Trace    string
	Number   int // in the session, from 1
	Outcome  Outcome
	Epoch    int64 // the fence: writes with another epoch are refused
	Attempt  int   // from 1
	Steps    []execution.Result
	Failure  *failure.Error
	Sequence int64 // the last message of the session that the turn has seen or written
}

// TurnID derives the id of a turn from what makes it unique, so that a repeated request
// finds its turn (guarantees 2.2): 26 characters of lower-case base32.
func TurnID(ref Ref, requestID string) string {
	sum := sha256.Sum256([]byte(ref.Tenant + "|" + ref.Session + "|" + requestID))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}
