package execution

import (
	"strconv"
	"strings"
	"time"
)

// Pending is a tool call that waits for an answer from outside the turn. A person must allow it, or a client must
// run it (LP-16, AD-32). The turn has ended with this call. The turn that brings the answer continues the step and
// repeats no finished call.
type Pending struct {
	ID        string // unique in the session; a call that keeps waiting gets another one in the next turn
	Agent     string // the agent of the step
	CallID    string // id that the model gave the call
	Tool      string
	Arguments string // JSON object that the tool would receive
	Needs     Need
	Risk      Effect       // of the tool
	Reason    string       // one sentence for the person (may be empty)
	Until     time.Time    // deadline: a later answer is ignored and the tool does not run (OC-33); zero means none
	Auth      *PendingAuth // only with NeedAuth
}

// PendingAuth names the credential that a call needs and the key to seal it to (LP-37).
type PendingAuth struct {
	Login
	ID      string // of the key
	Key     []byte // public key
	Expires time.Time
}

// stepAndCall returns the step and the call number in the id of a pending call. Only the turn number in the id
// changes when a later turn continues the call.
func stepAndCall(id string) (step, number string) {
	_, rest, _ := strings.Cut(id, "-")
	step, number, _ = strings.Cut(rest, "-")
	return step, number
}

// Need is what a pending call waits for.
type Need string

// The needs.
const (
	NeedApproval Need = "approval" // the permission to run
	NeedResult   Need = "result"   // the result, from the client that runs it
	NeedAuth     Need = "auth"     // a credential that the tool lacks
)

// Answer is the answer to a pending call.
type Answer struct {
	ID      string // of the Pending
	Verdict Verdict
	Text    string // the result or the error of a tool, or why a call is denied; the model reads it
	By      string // person or program that answers, as in Auth.Actor (may be empty)
	Late    bool   // the answer came after Pending.Until, so the call is denied whatever the verdict says

	// Agent, Digest and AuthID repeat what the Pending showed: the agent, the digest of the tool with its
	// arguments, and the key. The answer is ignored if the call has changed.
	Agent  string
	Digest string
	AuthID string

	// Sealed is the sealed credential for a call with NeedAuth. It is only used with Approve. Without it the Auth
	// of the turn may hold the credential.
	Sealed string
}

// IsFor reports whether a answers this call. The id of the call may come from a later turn.
func (a Answer) IsFor(id string) bool {
	step, number := stepAndCall(a.ID)
	nowStep, nowNumber := stepAndCall(id)
	return a.ID != "" && step == nowStep && number == nowNumber
}

// Step returns the number of the step whose call is answered (0 if the id is not valid).
func (a Answer) Step() int {
	step, _ := stepAndCall(a.ID)
	number, _ := strconv.Atoi(step)
	return number
}

// Verdict is the decision about a pending call.
type Verdict string

// The verdicts. The first three answer NeedApproval and NeedAuth. The other two answer NeedResult.
const (
	Approve Verdict = "approve" // the tool runs
	Deny    Verdict = "deny"    // the tool does not run; the model reads that, and the turn continues
	Stop    Verdict = "stop"    // the tool does not run, and the turn ends
	Succeed Verdict = "succeed" // the tool ran at the client, and Text is its result
	Fail    Verdict = "fail"    // the tool ran at the client and failed, and Text says why
)
