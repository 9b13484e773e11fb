package execution

import (
	"strconv"
	"strings"
	"time"
)

// Pending is a tool call that needs an answer from outside the turn: a person must allow it, or a client must run
// it (LP-16, AD-32). The call has ended the turn. The turn that brings the answer continues the step without
// repeating finished calls.
type Pending struct {
	ID        string // unique in the session; a call that keeps waiting gets another one in the next turn
	Agent     string // the agent of the step
	CallID    string // id of the call in the model's message
	Tool      string
	Arguments string // JSON object that the tool would receive
	Needs     Need
	Risk      Effect       // effect of the tool
	Reason    string       // one sentence for the person (may be empty)
	Until     time.Time    // deadline: a later answer is ignored and the tool does not run (OC-33); zero means none
	Auth      *PendingAuth // only with NeedAuth
}

// PendingAuth holds the credential that a call needs and the public key to which it must be sealed (LP-37).
type PendingAuth struct {
	Login
	ID      string // id of the key
	Key     []byte // public key
	Expires time.Time
}

// parsePendingID returns the step and the call number from the id of a pending call. When a later turn continues
// the call, only the turn number in the id changes.
func parsePendingID(id string) (step, number string) {
	_, rest, _ := strings.Cut(id, "-")
	step, number, _ = strings.Cut(rest, "-")
	return step, number
}

// Need says what a pending call waits for.
type Need string

// The needs.
const (
	NeedApproval Need = "approval" // the permission to run
	NeedResult   Need = "result"   // the result, from the client that runs it
	NeedAuth     Need = "auth"     // a credential that the tool lacks
)

// Answer is the answer to a pending call.
type Answer struct {
	ID      string // id of the Pending
	Verdict Verdict
	Text    string // the result or the error of a tool, or why a call is denied; the model reads it
	By      string // person or program that answers, as in Auth.Actor (may be empty)
	Late    bool   // the answer came after Pending.Until, so the call is denied whatever the verdict says

	// Agent, Digest and AuthID repeat values of the Pending: the agent, the digest of the tool and its arguments,
	// and the id of the key. The answer is ignored if the call has changed since.
	Agent  string
	Digest string
	AuthID string

	// Sealed is the sealed credential for a call with NeedAuth. It is only used with the verdict Approve. If it is
	// empty, the Auth of the turn may contain the credential.
	Sealed string
}

// IsFor reports whether a answers the given call. The id of the call may come from a later turn.
func (a Answer) IsFor(id string) bool {
	step, number := parsePendingID(a.ID)
	nowStep, nowNumber := parsePendingID(id)
	return a.ID != "" && step == nowStep && number == nowNumber
}

// Step returns the number of the step that made the call (0 if the id is not valid).
func (a Answer) Step() int {
	step, _ := parsePendingID(a.ID)
	number, _ := strconv.Atoi(step)
	return number
}

// Verdict is the decision about a pending call.
type Verdict string

// The verdicts. The first three answer a call with NeedApproval or NeedAuth, and the other two a call with
// NeedResult.
const (
	Approve Verdict = "approve" // the tool runs
	Deny    Verdict = "deny"    // the tool does not run; the model reads that, and the turn continues
	Stop    Verdict = "stop"    // the tool does not run, and the turn ends
	Succeed Verdict = "succeed" // the tool ran at the client, and Text is its result
	Fail    Verdict = "fail"    // the tool ran at the client and failed, and Text says why
)
