package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// ReasonApprovalTimeout is that of the warning that a tool did not run because nobody approved
// it in time (OC-33).
const ReasonApprovalTimeout = "APPROVAL_TIMEOUT"

// ReasonApprovalOutdated is that of the warning that a tool did not run because handlers changed
// its arguments behind the person's back.
const ReasonApprovalOutdated = "APPROVAL_OUTDATED"

// maxReason is how much of the description of a tool the person who is asked gets to read, in
// characters.
const maxReason = 240

// lasts reports whether what a call does goes on from turn to turn: an agent that is a tool
// does it call by call, and the client does not know of turns. Its intent in the journal says
// that it was allowed, and leaves nothing in doubt.
func (w *work) lasts() bool { return w.nest != nil || w.call.AtClient }

// waits reports whether a call waits for somebody outside of the turn.
func (w *work) waits() bool { return len(w.pending) > 0 }

// expect finds what the turn brought for a call, before its handlers run. Of one that has run,
// or may have, it is ignored.
func (r *run) expect(w *work) {
	_, begun := r.replay(w.entry.Number, execution.Intent)
	if r.patient && !w.call.Replayed {
		for _, a := range r.in.Answers {
			if a.IsFor(w.id) {
				w.answer = a
			}
		}
	}
	r.SetWait(w.call, r.patient, w.call.Replayed || begun, w.answer)
}

// heed does to a call what somebody said about it, when its handlers have run. A handler that
// has decided otherwise meanwhile, other than to let it wait, stays right, but for a stop.
func (r *run) heed(w *work) error {
	a, c := w.answer, w.call
	otherwise := c.Status != "" && c.Status != event.ToolWaiting
	switch {
	case a.ID == "" || otherwise && (a.Late || a.Verdict != execution.Stop):
	case a.Late && a.AuthID != "":
		return r.noLogin(w)
	case a.Late:
		return r.tooLate(w)
	case a.Verdict == execution.Stop:
		c.Stop(c.Denied(a.Text))
	case a.Digest != "" && a.Digest != stepjournal.CallDigest(c.Name, w.shown()):
		return r.outdated(w)
	case a.Verdict == execution.Deny:
		c.Skip("Not run: " + c.Denied(a.Text))
		w.settled()
	case a.Verdict == execution.Succeed:
		c.Answer(strings.ToValidUTF8(a.Text, "�"))
		w.settled()
	case a.Verdict == execution.Fail:
		c.Refuse(failedText + strings.ToValidUTF8(a.Text, "�"))
		w.settled()
	}
	return nil
}

// shown are the arguments of a call as who answers it saw them.
func (w *work) shown() string {
	if w.answer.Verdict == execution.Succeed || w.answer.Verdict == execution.Fail {
		if args, err := w.schema.Check(w.call.Name, json.RawMessage(w.call.Arguments)); err == nil {
			return string(args)
		}
	}
	return w.call.Arguments
}

// outdated skips a call that is not the one that was answered: its handlers have made another of
// it meanwhile, of state that has changed, say.
func (r *run) outdated(w *work) error {
	w.call.Skip("Not run: its arguments have changed since the user was asked about it. Ask for it again, if it is still wanted.")
	w.settled()
	return r.Events.Emit(event.Warning{
		Reason:  ReasonApprovalOutdated,
		Message: fmt.Sprintf("the tool %s did not run, because its arguments are not those that were answered", w.asked.Name),
	})
}

// settled notes that an answer decided a call: a successor finds that in the journal, for its
// turn may not bring the answer again.
func (w *work) settled() { w.entry.Phase, w.decided = execution.Done, true }

// tooLate skips a call that nobody allowed in time.
func (r *run) tooLate(w *work) error {
	within := "in time"
	if span := time.Until(w.call.Until).Round(time.Second); span > 0 { // that its handler would give it anew
		within = fmt.Sprintf("within %v", span)
	}
	w.call.Skip("Not run: nobody approved it " + within + ".")
	w.settled()
	return r.Events.Emit(event.Warning{
		Reason:  ReasonApprovalTimeout,
		Message: fmt.Sprintf("the tool %s did not run, because nobody approved it %s", w.asked.Name, within),
	})
}

// hold lets a call wait, if it has to: for its handlers, for a credential, or for the client
// that runs it.
func (r *run) hold(w *work) error {
	c := w.call
	p := execution.Pending{
		ID: w.id, Agent: r.in.Agent, CallID: w.asked.ID, Tool: w.asked.Name, Arguments: c.Arguments, Needs: execution.NeedApproval, Risk: c.Effect, Reason: strings.ToValidUTF8(c.Text, "�"), Until: c.Until,
	}
	if c.Status == "" && c.AtClient && !c.Replayed {
		args, err := w.schema.Check(c.Name, json.RawMessage(c.Arguments))
		if err != nil {
			w.refuse(err)
			return nil
		}
		p.Arguments = string(args)
		p.Needs, p.Reason = execution.NeedResult, fmt.Sprintf("The agent %s asks for %s: %s", r.turn.Info().Agent, c.Name,
			conversation.Brief(c.Description, maxReason))
		c.Status = event.ToolWaiting
	}
	if c.Status != event.ToolWaiting {
		return nil
	}
	switch {
	case r.MissingLogin(c) != nil && (!r.patient || r.in.Broker == nil):
		w.refuse(failure.Newf(failure.AgentState, "loop.Run",
			"%s lacks the credential %s, and nobody can be asked for it here; send it with the turn", c.Name, r.MissingLogin(c).Name))
	case !r.patient:
		w.refuse(failure.Newf(failure.AgentState, "loop.Run", "%s runs at the client of the agent, and nobody can be asked here; "+
			"run the agent in a session, whose turns can wait: local.Open, or the mesh", c.Name))
	case !utf8.ValidString(p.Arguments):
		w.refuse(failure.Newf(failure.AgentValidation, "loop.Run", "the arguments of %s are no valid UTF-8", c.Name))
	case len(p.Arguments) > conversation.MaxMessageBytes:
		w.refuse(failure.Newf(failure.ResourceQuota, "loop.Run", "the arguments of %s have %d bytes, and a call that waits may have %d; store more as an artifact",
			c.Name, len(p.Arguments), conversation.MaxMessageBytes))
	default:
		w.pending = []execution.Pending{p}
		if r.MissingLogin(c) != nil {
			return r.lack(w, &w.pending[0])
		}
	}
	return nil
}

// refuse fails a call that cannot run.
func (w *work) refuse(why error) {
	w.call.Refuse(failedText + failure.Plain(why))
	w.call.Err = why
}

// allow notes that a call whose work goes on from turn to turn may do so: the turns behind this
// one do not bring the answer again.
func (r *run) allow(w *work) {
	if w.lasts() && w.answer.Verdict == execution.Approve && (w.call.Status == "" || w.waits()) {
		note := w.entry
		note.Phase = execution.Intent
		r.record(note)
	}
}

// await leaves a call that waits to the turn that goes on. If the turn stops meanwhile it is
// given up.
func (r *run) await(ctx context.Context, w *work) error {
	if !r.stopping() && !r.Progress.Ended() {
		r.waiting = append(r.waiting, w.pending...)
		return nil
	}
	return r.giveUp(ctx, w)
}

// part finishes a call of a round in which one before it waits: it has ended, and is not done
// again. Its place in the conversation, and the handlers behind it, come behind those of the one
// that waits, in the turn that goes on.
func (r *run) part(w *work) error {
	if w.lost != nil {
		return w.lost
	}
	changes := func() (set map[string]json.RawMessage, removed []string) {
		if failed(w.call.Status) {
			return nil, nil
		}
		return r.ChangesOf(w.memory)
	}
	if err := r.note(w, changes); err != nil {
		return err
	}
	return r.report(w)
}

// giveUp answers a call that waits in vain. One of an agent that is a tool has begun.
func (r *run) giveUp(ctx context.Context, w *work) error {
	if w.nest == nil || len(w.nest.Pending) == 0 {
		return r.skip(w.asked)
	}
	w.call.Status, w.call.Text = event.ToolInterrupted, interrupted
	return r.finish(ctx, w)
}

// suspend makes sure that a turn that goes on finds all that was done in this one, and tells
// which calls wait.
func (r *run) suspend(ctx context.Context) error {
	if len(r.waiting) > execution.MaxPending {
		return pendingcall.TooManyError(len(r.waiting))
	}
	r.settle()
	if err := r.in.Journal.Sync(ctx); err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return err
	}
	for _, p := range r.waiting {
		if err := r.Events.Emit(event.ToolPending{Pending: p}); err != nil {
			return err
		}
	}
	return nil
}
