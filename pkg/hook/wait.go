package hook

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Waiting is what package loop knows of a call that may have to wait, or has waited.
type Waiting struct {
	Can    bool             // the turn can go on later, because a journal keeps what was done
	Over   bool             // it has waited, or has run, in an attempt or a turn before this one
	Answer execution.Answer // that this turn brought for it; the zero Answer: none
}

// CanWait reports whether the call can wait for somebody outside of the turn: the turn has a
// journal, so that another one can go on in its place. It cannot where an agent runs without a
// session, nor when the tool is called outside of a turn.
func (c *Call) CanWait() bool { return c.waiting.Can }

// Wait lets the call wait until somebody outside of the turn allows it (AD-32): it does not
// run, and the turn ends with it. Reason is one sentence for the person who is asked. An answer
// behind until counts as a denial; the zero time sets no limit. The first handler that lets a
// call wait decides about these. The handlers behind it run all the same, so that the person
// reads the arguments as the tool gets them, and may answer, refuse or skip the call instead.
//
// When the turn goes on, the handlers run again and do the same: Wait then lets a call go on
// that was allowed, and one that was not does not run. So a handler needs to keep nothing. A
// call that cannot wait is refused, for nobody can be asked.
func (c *Call) Wait(reason string, until time.Time) {
	if c.Status == event.ToolWaiting && c.Lacks != nil && c.Text == "" && !c.waiting.Over && !allows(c.waiting.Answer) {
		c.Text, c.Until = reason, until // one answer is for both
		return
	}
	switch {
	case c.Status != "" || c.waiting.Over || allows(c.waiting.Answer):
	case !c.waiting.Can:
		c.Refuse("Not run: " + c.Name + " needs an approval, and nobody can be asked for it.")
	default:
		c.Status, c.Text, c.Until = event.ToolWaiting, reason, until
	}
}

// Login lets the call wait until somebody brings a credential that it lacks (LP-37): it does not
// run, and the turn ends with it. It does nothing when the credential is there, under the context
// of the handler. Of a call that also waits for an approval one answer is for both: who gives the
// credential has seen the arguments, and allows them. The first handler that lacks something
// decides what is asked for.
//
// When the turn goes on, the handlers run again, and find the credential, as the tool does. It
// is the tool's alone, for the rest of the turn. A tool itself says with tool.WithLogin what it
// needs.
func (c *Call) Login(ctx context.Context, login execution.Login) {
	if c.Status != "" && c.Status != event.ToolWaiting || c.waiting.Over || c.Lacks != nil {
		return
	}
	if _, ok := execution.Credential(ctx, login.Name); ok {
		return
	}
	c.Status, c.Lacks = event.ToolWaiting, &login
}

// allows reports whether an answer lets a handler go on: a tool that ran at the client had been
// allowed.
func allows(a execution.Answer) bool {
	return !a.Late && (a.Verdict == execution.Approve || a.Verdict == execution.Succeed || a.Verdict == execution.Fail)
}

// Answered returns what the turn brought for this call, if it waited in the turn before.
func (c *Call) Answered() (execution.Answer, bool) {
	return c.waiting.Answer, c.waiting.Answer.ID != ""
}

// Denied says that the user does not allow the tool, and why, if there is a reason.
func (c *Call) Denied(reason string) string {
	if reason == "" {
		return "the user does not allow " + c.Name + "."
	}
	return "the user does not allow " + c.Name + ": " + reason
}

// Waiting tells a call what there is to know of its waiting, before its handlers run.
func (c *Control) Waiting(call *Call, w Waiting) { call.waiting = w }
