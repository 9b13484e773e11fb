package prepare

import (
	"context"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// ReasonAuthTimeout is the warning reason for a tool that did not run because its credential did not arrive in
// time (OC-33).
const ReasonAuthTimeout = "AUTH_TIMEOUT"

// ReasonAuthAskedAgain is the warning reason for a call that waits for a credential again, because the received
// one cannot be opened (LP-37).
const ReasonAuthAskedAgain = "AUTH_ASKED_AGAIN"

// errNoCredential is the error for an answer without a credential. The call then waits again.
var errNoCredential = failure.New(failure.UserInvalidInput, "loop.Run", "it was allowed, and no credential came")

// openCredential opens the sealed credential of an answer and lends it to the tool of the call. It does so even if
// an earlier attempt made the call, because the tool may run again. No other tool of the step can use the
// credential.
func (p *Preparer) openCredential(ctx context.Context, c *toolcall.Call) {
	if !p.CanWait || p.Broker == nil {
		return
	}
	for _, a := range p.Answers {
		switch {
		case !a.IsFor(c.ID) || a.AuthID == "" || a.Late || a.Verdict != execution.Approve:
		case a.Sealed == "":
			c.Answer.CredentialErr = errNoCredential
		default:
			name, credential, err := p.Broker.Open(a.AuthID, []byte(a.Sealed))
			if c.Answer.CredentialErr = err; err == nil {
				execution.LendCredential(ctx, name, credential)
			}
		}
	}
}

// requireLogin makes a call wait if its tool declares a credential that is not available.
func (p *Preparer) requireLogin(ctx context.Context, c *toolcall.Call) {
	if c.Nested != nil || c.HookCall.AtClient || p.Stop.IsFinishing() || p.Log.SealedJournal() != nil && c.HookCall.Replayed {
		return
	}
	if login, ok := tool.LoginOf(c.Tool); ok {
		c.HookCall.Login(ctx, login)
	}
}

// askForLogin makes a call wait for a credential. It emits a warning if the call already waited and the received
// credential cannot be used, for example because its key was lost with its process.
func (p *Preparer) askForLogin(c *toolcall.Call, pending *execution.Pending) error {
	login := *p.Control.MissingLogin(c.HookCall)
	key, err := p.Broker.Ask(login.Name)
	if err != nil {
		c.Pending = nil
		c.Reject(err)
		return nil
	}
	login.Name, login.Prompt, login.URL = strings.ToValidUTF8(login.Name, "�"), strings.ToValidUTF8(login.Prompt, "�"), strings.ToValidUTF8(login.URL, "�")
	key.Login = login
	pending.Needs, pending.Auth = execution.NeedAuth, &key
	if pending.Until.IsZero() || key.Expires.Before(pending.Until) {
		pending.Until = key.Expires
	}
	reasons := []string{pending.Reason, fmt.Sprintf("The agent %s needs the credential %s for %s.", p.Control.Turn().Info().Agent, login.Name, c.HookCall.Name)}
	if pending.Reason == "" {
		reasons = reasons[1:]
	}
	if c.Answer.CredentialErr == nil {
		pending.Reason = strings.Join(reasons, " ")
		return nil
	}
	why := failure.PlainMessage(c.Answer.CredentialErr)
	pending.Reason = strings.Join(append(reasons, "It is asked for again: "+why+"."), " ")
	return p.emitWarning(ReasonAuthAskedAgain, fmt.Sprintf("the tool %s lacks a credential once more: %s", c.Requested.Name, why))
}

// skipWithoutLogin skips a call whose credential did not arrive in time.
func (p *Preparer) skipWithoutLogin(c *toolcall.Call) error {
	c.HookCall.Skip("Not run: nobody gave it the credential that it lacks in time. Ask for it again, if it is still wanted.")
	c.MarkDecided()
	return p.emitWarning(ReasonAuthTimeout, fmt.Sprintf("the tool %s did not run, because nobody brought the credential that it lacks in time",
		c.Requested.Name))
}
