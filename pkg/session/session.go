// Package session is the durable side of a conversation: the session, its turns, and how
// they end.
package session

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Limits of a session (guarantees S9).
const (
	MaxMessages = 10_000
	MaxBytes    = 64 << 20
)

// Outcome says how a turn ended.
type Outcome string

// The outcomes of a turn. An open turn has the zero Outcome.
const (
	OutcomeOpen          Outcome = ""
	OutcomeCompleted     Outcome = "completed"
	OutcomeFailed        Outcome = "failed"
	OutcomeCancelled     Outcome = "cancelled"
	OutcomeInputRequired Outcome = "input_required"
	OutcomeAuthRequired  Outcome = "auth_required"
)

// Asking is how a turn ends whose last step has a question, or calls that wait: for a credential
// among others with auth_required, or else with input_required.
func Asking(r execution.Result) Outcome {
	if pendingcall.NeedsAuth(r.Pending) {
		return OutcomeAuthRequired
	}
	return OutcomeInputRequired
}

// Asks reports whether the turn ended with a question, or with calls that wait.
func (o Outcome) Asks() bool { return o == OutcomeInputRequired || o == OutcomeAuthRequired }

// Ref names a session of a tenant.
type Ref struct {
	Tenant  string
	Session string
}

// Session is what is known of one conversation.
type Session struct {
	ID            string
	User          string // user of the session (empty if its first turn named none)
	State         State
	Turns         int
	Messages      int64 // that it holds; those that a summary stands for are not counted
	Bytes         int64 // of the messages that it holds
	Sequence      int64 // of its last message, removed ones included
	Summarized    int64 // sequence of the last message that the summary replaces (0 without a summary)
	ArtifactBytes int64
	Created       time.Time
	LastActivity  time.Time
	OpenTurn      string              // turn id; empty when none is open
	WaitingTurn   string              // id of the turn whose calls wait for an answer; empty when there is none
	Pending       []execution.Pending // of that turn; GetSession alone finds them
	LastTrace     string              //
	Metadata      map[string]string   // labels of the caller
	Revision      int64               // of the metadata; grows with every change
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

	Continues string             // id of the turn with waiting calls that this turn continues (empty means none)
	Answers   []execution.Answer // to those calls

	// Origin is the first of the failed turns that this turn resumes, directly or through others (empty if it
	// resumes none).
	Origin string
}

// TurnID derives the id of a turn from what makes it unique, so that a repeated request
// finds its turn (guarantees 2.2): 26 characters of lower-case base32.
func TurnID(ref Ref, requestID string) string {
	sum := sha256.Sum256([]byte(ref.Tenant + "|" + ref.Session + "|" + requestID))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}
