package execution

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// MaxPending is how many calls of one turn may wait, and MaxAnswer what an answer may hold in
// bytes.
const (
	MaxPending = 64
	MaxAnswer  = 256 << 10
)

// Pending is a tool call that waits for somebody outside of the turn: for a person who allows
// it, or for a client that runs it (LP-16, AD-32). The turn has ended with it; the turn that
// brings the answer goes on in its place, and does nothing again that was done.
type Pending struct {
	ID        string // PendingID: no other call of the session ever has it; one that is left to wait on gets another
	Agent     string // of the step, which goes on with it
	CallID    string // as the model named the call
	Tool      string
	Arguments string // a JSON object, as the tool would get it
	Needs     Need
	Risk      Effect       // of the tool
	Reason    string       // one sentence for the person; empty when there is nothing to say
	Until     time.Time    // an answer behind it counts as none, so the tool does not run (OC-33); zero: there is no such time
	Auth      *PendingAuth // with NeedAuth only
}

// PendingAuth is the credential that a call lacks, and the key to which it is sealed (LP-37).
type PendingAuth struct {
	Login
	ID      string // of the key, as package broker makes it
	Key     []byte // its public half
	Expires time.Time
}

// AnyAuth reports whether some of the calls lack a credential.
func AnyAuth(waiting []Pending) bool {
	return slices.ContainsFunc(waiting, func(p Pending) bool { return p.Needs == NeedAuth })
}

// PendingID is the id of the call of a number in a step of a turn, all from 1.
func PendingID(turn, step, number int) string { return fmt.Sprintf("%d-%d-%d", turn, step, number) }

// place is what the id of a call has in every turn that goes on with it: all but the turn.
func place(id string) (step, number string) {
	_, at, _ := strings.Cut(id, "-")
	step, number, _ = strings.Cut(at, "-")
	return step, number
}

// Need is what a pending call waits for.
type Need string

// What a call can wait for.
const (
	NeedApproval Need = "approval" // somebody's word that it may run
	NeedResult   Need = "result"   // what came of it where the client ran it
	NeedAuth     Need = "auth"     // a credential that its tool lacks
)

// Answer is what somebody says about a pending call.
type Answer struct {
	ID      string // of the Pending
	Verdict Verdict
	Text    string // the result or the error of a tool, or why a call is denied; the model reads it
	By      string // who says so, as the turn's Auth names the actor; empty: nobody is named
	Late    bool   // it came behind the time for it, and whatever it says the call is denied

	// What was answered, from the Pending: who asked, and CallDigest of the tool with the
	// arguments that were shown. An answer counts for nothing else.
	Agent  string
	Digest string
	AuthID string // of the key that the call showed

	// Sealed is the credential of a call that waits for one, as broker.Seal leaves it. With
	// Approve only; without it the turn's Auth may have the credential.
	Sealed string
}

// To reports whether the answer is to the call that has the id now, in the turn that goes on.
func (a Answer) To(id string) bool {
	step, number := place(a.ID)
	nowStep, nowNumber := place(id)
	return a.ID != "" && step == nowStep && number == nowNumber
}

// Step is the number of the step whose call is answered; 0: the id is none of PendingID.
func (a Answer) Step() int {
	step, _ := place(a.ID)
	number, _ := strconv.Atoi(step)
	return number
}

// Verdict is what becomes of a pending call.
type Verdict string

// The verdicts. The first three answer NeedApproval and NeedAuth, the other two NeedResult.
const (
	Approve Verdict = "approve" // the tool runs
	Deny    Verdict = "deny"    // it does not; the model reads that, and the turn goes on
	Stop    Verdict = "stop"    // it does not, nor does the rest of the round, and the turn ends
	Succeed Verdict = "succeed" // the tool ran at the client; Text is its result
	Fail    Verdict = "fail"    // it ran there and failed; Text says why
)

// verdicts are those that a need takes.
var verdicts = map[Need][]Verdict{
	NeedApproval: {Approve, Deny, Stop},
	NeedResult:   {Succeed, Fail},
	NeedAuth:     {Approve, Deny, Stop},
}

// Settle checks answers against the calls that wait, marks those that come too late, and notes
// what was answered. Calls without an answer go on waiting. Modes: user_invalid_input, which names the answer and what
// would be right.
func Settle(waiting []Pending, answers []Answer, now time.Time) ([]Answer, error) {
	const op = "execution.Settle"
	if len(answers) == 0 {
		return nil, failure.Newf(failure.UserInvalidInput, op, "answers: there is none; waiting: %s", ids(waiting))
	}
	settled := slices.Clone(answers)
	for i, a := range settled {
		at := slices.IndexFunc(waiting, func(p Pending) bool { return p.ID == a.ID })
		if at < 0 {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].id: no call %q waits here; waiting: %s", i, a.ID, ids(waiting))
		}
		if slices.ContainsFunc(settled[:i], func(before Answer) bool { return before.ID == a.ID }) {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].id: %q is answered twice; answer it once", i, a.ID)
		}
		p := waiting[at]
		if fit := verdicts[p.Needs]; !slices.Contains(fit, a.Verdict) {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].verdict: %q does not answer a call of %s that waits for its %s; say one of %v",
				i, a.Verdict, p.Tool, p.Needs, fit)
		}
		if len(a.Text) > MaxAnswer {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].text: %d bytes, at most %d; store more as an artifact", i, len(a.Text), MaxAnswer)
		}
		if a.Sealed != "" && (p.Auth == nil || a.Verdict != Approve) {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].sealed: only an approval of a call that waits for a credential has one; leave it out", i)
		}
		if len(a.Sealed) > broker.MaxSealed {
			return nil, failure.Newf(failure.UserInvalidInput, op, "answers[%d].sealed: %d bytes, at most %d", i, len(a.Sealed), broker.MaxSealed)
		}
		settled[i].AuthID = ""
		if p.Auth != nil {
			settled[i].AuthID = p.Auth.ID
		}
		settled[i].Late = !p.Until.IsZero() && now.After(p.Until)
		if settled[i].Late {
			settled[i].Sealed = "" // nobody opens it any more
		}
		settled[i].Agent, settled[i].Digest = p.Agent, CallDigest(p.Tool, p.Arguments)
	}
	return settled, nil
}

func ids(waiting []Pending) string {
	all := make([]string, len(waiting))
	for i, p := range waiting {
		all[i] = p.ID
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
