// Package session defines what is stored about a conversation: the session, its turns, and their outcomes.
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

// The limits of a session (guarantee S9), and the default of Settings.MaxMessages (LP-2).
const (
	MaxMessages        = 10_000
	MaxBytes           = 64 << 20
	DefaultMaxMessages = 100
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

// InputOutcome returns the outcome of a turn that ends because steps with these results ask a question or have pending
// calls. The outcome is auth_required if a call waits for a credential, and input_required otherwise.
func InputOutcome(results ...execution.Result) Outcome {
	for _, r := range results {
		if pendingcall.NeedsAuth(r.Pending) {
			return OutcomeAuthRequired
		}
	}
	return OutcomeInputRequired
}

// NeedsInput reports whether the turn ended with a question or with pending calls.
func (o Outcome) NeedsInput() bool { return o == OutcomeInputRequired || o == OutcomeAuthRequired }

// Ref identifies a session of a tenant.
type Ref struct {
	Tenant  string
	Session string
}

// Session holds the state of one conversation, without its messages.
type Session struct {
	ID           string
	User         string // user of the session (empty if its first turn named none)
	State        State
	Turns        int // number of turns that have begun
	Size         Size
	LastSequence int64 // sequence of the last message, even if the message was removed
	Created      time.Time
	LastActivity time.Time
	OpenTurn     string              // id of the open turn (empty means none)
	WaitingTurn  string              // id of the turn whose calls wait for an answer (empty means none)
	Pending      []execution.Pending // pending calls; only GetSession returns them
	LastTrace    string              // id of the trace of the last turn
	Metadata     map[string]string   // labels of the caller
	Settings     Settings
	Revision     int64 // revision of metadata and settings, which grows with every change
}

// Size says how much data a session holds.
type Size struct {
	Messages      int64 // number of messages, without messages that a summary replaces
	Bytes         int64 // size of these messages
	ArtifactBytes int64 // size of all versions of the session's own artifacts
	Summarized    int64 // sequence of the last message that the summary replaces (0 without a summary)
	Unsaved       int64 // number of the latest messages that are not saved yet; only with NoAutoSave
}

// Turn holds the state of one turn: a user input and the steps that lead to its result.
type Turn struct {
	ID       string
	Trace    string
	Number   int // in the session, from 1
	Outcome  Outcome
	Epoch    int64 // fence: writes with another epoch are rejected
	Attempt  int   // from 1
	Steps    []execution.Result
	Failure  *failure.Error
	Sequence int64 // sequence of the last message that the turn has read or written

	Continues string             // id of the turn with waiting calls that this turn continues (empty means none)
	Answers   []execution.Answer // answers to those calls

	// OriginTurnID is the id of the failed turn that this turn resumes (empty if none). If that turn resumed
	// another, it is the first turn of the chain.
	OriginTurnID string
}

// TurnID derives the id of a turn from the request that begins it, so that a repeated request finds the same turn
// (guarantees, section 2.2). The id consists of 26 characters of lower-case base32.
func TurnID(ref Ref, requestID string) string {
	sum := sha256.Sum256([]byte(ref.Tenant + "|" + ref.Session + "|" + requestID))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}
