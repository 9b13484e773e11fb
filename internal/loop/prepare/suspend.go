package prepare

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// maxReasonChars limits the tool description that is shown to the person who is asked.
const maxReasonChars = 240

// suspend makes a call wait if it needs an approval, a credential, or a client that runs it. It fails the call if
// the call cannot wait.
func (p *Preparer) suspend(c *toolcall.Call) error {
	h := c.HookCall
	pending := execution.Pending{
		ID: c.ID, Agent: p.Agent, CallID: c.Requested.ID, Tool: c.Requested.Name, Arguments: h.Arguments,
		Needs: execution.NeedApproval, Risk: h.Effect, Reason: strings.ToValidUTF8(h.Text, "�"), Until: h.Until,
	}
	if h.Status == "" && h.AtClient && !h.Replayed {
		schema, _ := tool.AtClient(c.Tool)
		args, err := schema.Check(h.Name, json.RawMessage(h.Arguments))
		if err != nil {
			c.Reject(err)
			return nil
		}
		pending.Arguments = string(args)
		pending.Needs, pending.Reason = execution.NeedResult, fmt.Sprintf("The agent %s asks for %s: %s",
			p.Control.Turn().Info().Agent, h.Name, conversation.Excerpt(h.Description, maxReasonChars))
		h.Status = event.ToolWaiting
	}
	if h.Status != event.ToolWaiting {
		return nil
	}
	if err := p.checkPending(c, pending.Arguments); err != nil {
		c.Reject(err)
		return nil
	}
	c.Pending = []execution.Pending{pending}
	if p.Control.MissingLogin(h) != nil {
		return p.askForLogin(c, &c.Pending[0])
	}
	return nil
}

// checkPending returns an error if a call with these arguments cannot wait.
func (p *Preparer) checkPending(c *toolcall.Call, arguments string) error {
	name, login := c.HookCall.Name, p.Control.MissingLogin(c.HookCall)
	switch {
	case login != nil && (!p.CanWait || p.Broker == nil):
		return failure.Newf(failure.AgentState, "loop.Run",
			"%s lacks the credential %s, and nobody can be asked for it here; send it with the turn", name, login.Name)
	case !p.CanWait:
		return failure.Newf(failure.AgentState, "loop.Run", "%s runs at the client of the agent, and nobody can be asked here; "+
			"run the agent in a session, whose turns can wait: local.Open, or the mesh", name)
	case !utf8.ValidString(arguments):
		return failure.Newf(failure.AgentValidation, "loop.Run", "the arguments of %s are no valid UTF-8", name)
	case len(arguments) > conversation.MaxMessageBytes:
		return failure.Newf(failure.ResourceQuota, "loop.Run",
			"the arguments of %s have %d bytes, and a call that waits may have %d; store more as an artifact",
			name, len(arguments), conversation.MaxMessageBytes)
	}
	return nil
}
