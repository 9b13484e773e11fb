package prepare

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// ReasonApprovalTimeout is the warning reason for a tool that did not run because no approval arrived in time
// (OC-33).
const ReasonApprovalTimeout = "APPROVAL_TIMEOUT"

// ReasonApprovalOutdated is the warning reason for a tool that did not run because handlers changed its arguments
// after a person had seen them.
const ReasonApprovalOutdated = "APPROVAL_OUTDATED"

// findAnswer finds the answer for a call among the answers of the turn, before the handlers of the call run. A
// call that has run or may have run gets no answer.
func (p *Preparer) findAnswer(c *toolcall.Call) {
	if p.CanWait && !c.HookCall.Replayed {
		for _, a := range p.Answers {
			if a.IsFor(c.ID) {
				c.Answer.Answer = a
			}
		}
	}
	p.Control.SetWait(c.HookCall, p.CanWait, c.HookCall.Replayed || p.Log.HasIntent(c.JournalEntry.Number), c.Answer.Answer)
}

// applyAnswer applies the answer of a call after its handlers have run. If a handler has decided the call rather
// than made it wait, the decision of the handler wins, except over a stop.
func (p *Preparer) applyAnswer(c *toolcall.Call) error {
	a, h := c.Answer, c.HookCall
	decided := h.Status != "" && h.Status != event.ToolWaiting
	switch {
	case a.ID == "" || decided && (a.Late || a.Verdict != execution.Stop):
	case a.Late && a.AuthID != "":
		return p.skipWithoutLogin(c)
	case a.Late:
		return p.skipLate(c)
	case a.Verdict == execution.Stop:
		h.Stop(h.DenialText(a.Text))
	case a.Digest != "" && a.Digest != stepjournal.CallDigest(h.Name, shownArguments(c)):
		return p.skipOutdated(c)
	case a.Verdict == execution.Deny:
		h.Skip("Not run: " + h.DenialText(a.Text))
		c.MarkDecided()
	case a.Verdict == execution.Succeed:
		h.Answer(strings.ToValidUTF8(a.Text, "�"))
		c.MarkDecided()
	case a.Verdict == execution.Fail:
		h.Reject(toolcall.FailedPrefix + strings.ToValidUTF8(a.Text, "�"))
		c.MarkDecided()
	}
	return nil
}

// shownArguments returns the arguments of a call as the person or client that answered it saw them.
func shownArguments(c *toolcall.Call) string {
	if c.Answer.Verdict == execution.Succeed || c.Answer.Verdict == execution.Fail {
		schema, _ := tool.AtClient(c.Tool)
		if args, err := schema.Check(c.HookCall.Name, json.RawMessage(c.HookCall.Arguments)); err == nil {
			return string(args)
		}
	}
	return c.HookCall.Arguments
}

// skipOutdated skips a call whose arguments differ from the answered ones. Handlers may have changed them since,
// for example because they depend on state.
func (p *Preparer) skipOutdated(c *toolcall.Call) error {
	c.HookCall.Skip("Not run: its arguments have changed since the user was asked about it. Ask for it again, if it is still wanted.")
	c.MarkDecided()
	return p.emitWarning(ReasonApprovalOutdated, fmt.Sprintf("the tool %s did not run, because its arguments are not those that were answered",
		c.Requested.Name))
}

// skipLate skips a call whose approval did not arrive in time.
func (p *Preparer) skipLate(c *toolcall.Call) error {
	within := "in time"
	if span := time.Until(c.HookCall.Until).Round(time.Second); span > 0 { // the handler has just set a new deadline
		within = fmt.Sprintf("within %v", span)
	}
	c.HookCall.Skip("Not run: nobody approved it " + within + ".")
	c.MarkDecided()
	return p.emitWarning(ReasonApprovalTimeout, fmt.Sprintf("the tool %s did not run, because nobody approved it %s", c.Requested.Name, within))
}
