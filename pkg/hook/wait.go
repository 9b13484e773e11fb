package hook

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// CanWait reports whether the call can wait for external input. The turn needs a journal for that, because another
// turn continues it. A call cannot wait if its agent runs without a session or outside of a turn.
func (c *Call) CanWait() bool { return c.wait.CanContinue }

// Wait suspends the call until an external answer allows it (AD-32). The call does not run, and the turn ends with
// it. Reason is one sentence for the person who is asked. An answer after until counts as a denial; the zero time
// sets no limit. The first handler that calls Wait sets both. The handlers after it still run, so that the person
// reads the arguments as the tool gets them. They may answer, refuse or skip the call instead.
//
// When the turn continues, the handlers run again and call Wait again. An allowed call then proceeds, and a denied
// one does not run. So a handler needs to store nothing. A call that cannot wait is refused.
func (c *Call) Wait(reason string, until time.Time) {
	if c.Status == event.ToolWaiting && c.wait.MissingLogin != nil && c.Text == "" && !c.wait.WaitedOrRan && !c.wait.Proceeds() {
		c.Text, c.Until = reason, until // one answer covers the login and the approval
		return
	}
	switch {
	case c.Status != "" || c.wait.WaitedOrRan || c.wait.Proceeds():
	case !c.wait.CanContinue:
		c.Reject("Not run: " + c.Name + " needs an approval, and no person can be asked for it.")
	default:
		c.Status, c.Text, c.Until = event.ToolWaiting, reason, until
	}
}

// Login suspends the call until the user provides a credential that it lacks (LP-37). The call does not run, and the
// turn ends with it. Login does nothing when ctx, the context of the handler, already has the credential. One answer
// covers the credential and an approval, because the user has seen the arguments. The first handler that lacks a
// credential decides which one the user is asked for.
//
// When the turn continues, the handlers run again. They and the tool find the credential, and nothing else does. A
// tool declares what it needs with tool.WithLogin.
func (c *Call) Login(ctx context.Context, login execution.Login) {
	if c.Status != "" && c.Status != event.ToolWaiting || c.wait.WaitedOrRan || c.wait.MissingLogin != nil {
		return
	}
	if _, ok := execution.Credential(ctx, login.Name); ok {
		return
	}
	c.Status, c.wait.MissingLogin = event.ToolWaiting, &login
}

// Answered returns the answer that this turn brought for the call. It reports false if there is none, because the
// call did not wait before.
func (c *Call) Answered() (execution.Answer, bool) {
	return c.wait.Answer, c.wait.Answer.ID != ""
}

// DenialText returns the sentence that tells the model that the user does not allow the tool, with the reason if
// there is one.
func (c *Call) DenialText(reason string) string {
	if reason == "" {
		return "the user does not allow " + c.Name + "."
	}
	return "the user does not allow " + c.Name + ": " + reason
}

// Allow records that a person has allowed this call with its current arguments, so the guard does not ask for
// approval (guarantee S14). Use it in a handler that asks within the turn. An answer to Wait needs no Allow.
func (c *Call) Allow() { c.wait.ApprovedInTurn = true }

// Allowed reports whether a person has allowed the call, either through Allow or through the answer that this turn
// brought.
func (c *Call) Allowed() bool { return c.wait.ApprovedInTurn || c.wait.Proceeds() }
