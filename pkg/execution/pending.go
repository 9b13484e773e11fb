package execution

import (
	"strconv"
	"strings"
	"time"
)

// Pending is a tool call that waits for an answer from outside the turn: from a person who allows it, or from a client
// that runs it (LP-16, AD-32). The turn has ended with it. The turn that brings the answer continues in its place and
// repeats nothing that was done.
type Pending struct {
	ID        string // unique in the session; a call that keeps waiting gets another one in the next turn
	Agent     string // the agent of the step
	CallID    string // as the model named the call
	Tool      string
	Arguments string // a JSON object, as the tool would get it
	Needs     Need
	Risk      Effect       // of the tool
	Reason    string       // one sentence for the person (may be empty)
	Until     time.Time    // a later answer does not count, and the tool does not run (OC-33); zero means no limit
	Auth      *PendingAuth // only with NeedAuth
}

// PendingAuth is the credential that a call lacks, and the key to seal it to (LP-37).
type PendingAuth struct {
	Login
	ID      string // of the key
	Key     []byte // its public half
	Expires time.Time
}

// callPlace returns the parts of a pending call's id that stay the same in every turn that continues with it: all but
// the number of the turn.
func callPlace(id string) (step, number string) {
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
	By      string // who answers, as the turn's Auth names the actor (may be empty)
	Late    bool   // it came after Pending.Until, so the call is denied whatever the verdict is

	// Agent, Digest and AuthID come from the Pending and say what was answered: the agent, the digest of the tool with
	// the arguments that were shown, and the key that was shown. An answer counts for nothing else.
	Agent  string
	Digest string
	AuthID string

	// Sealed is the sealed credential for a call with NeedAuth, only with Approve. Without it the turn's Auth may
	// have the credential.
	Sealed string
}

// IsFor reports whether a answers the call that has the given id in a later turn.
func (a Answer) IsFor(id string) bool {
	step, number := callPlace(a.ID)
	nowStep, nowNumber := callPlace(id)
	return a.ID != "" && step == nowStep && number == nowNumber
}

// Step returns the number of the step whose call is answered (0 when the id is not one of a pending call).
func (a Answer) Step() int {
	step, _ := callPlace(a.ID)
	number, _ := strconv.Atoi(step)
	return number
}

// Verdict is the decision about a pending call.
type Verdict string

// The verdicts. The first three answer NeedApproval and NeedAuth, the other two NeedResult.
const (
	Approve Verdict = "approve" // the tool runs
	Deny    Verdict = "deny"    // the tool does not run; the model reads that, and the turn continues
	Stop    Verdict = "stop"    // the tool does not run, and the turn ends
	Succeed Verdict = "succeed" // the tool ran at the client, and Text is its result
	Fail    Verdict = "fail"    // the tool ran at the client and failed, and Text says why
)
