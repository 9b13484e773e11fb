package loop

import (
	"context"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// ReasonAuthTimeout is that of the warning that a tool did not run because nobody brought the
// credential that it lacks in time (OC-33).
const ReasonAuthTimeout = "AUTH_TIMEOUT"

// ReasonAuthAskedAgain is that of the warning that a call waits for a credential once more,
// because the one that came cannot be read (LP-37).
const ReasonAuthAskedAgain = "AUTH_ASKED_AGAIN"

// errNoCredential is why a call waits again whose answer brought nothing.
var errNoCredential = failure.New(failure.UserInvalidInput, "loop.Run", "it was allowed, and no credential came")

// holding is for the tool of a call and its handlers: there they find what was lent to it.
func (w *work) holding(ctx context.Context) context.Context {
	return execution.WithHolder(ctx, w.r.turn.Info().Agent+"/"+w.asked.Name)
}

// open gives the tool of a call the credential that an answer has sealed, also when this call
// was done in an attempt before: the tool may be called again. Nothing else of the step has it.
func (r *run) open(ctx context.Context, w *work) {
	for _, a := range r.in.Answers {
		switch {
		case !a.IsFor(w.id) || a.AuthID == "" || a.Late || a.Verdict != execution.Approve || !r.patient || r.in.Broker == nil:
		case a.Sealed == "":
			w.unread = errNoCredential
		default:
			name, v, err := r.in.Broker.Open(a.AuthID, []byte(a.Sealed))
			if w.unread = err; err == nil {
				execution.LendCredential(ctx, name, v)
			}
		}
	}
}

// login lets a call wait whose tool declares a credential that is not there.
func (r *run) login(ctx context.Context, w *work) {
	if w.nest != nil || w.call.AtClient || r.stopping() || r.Progress.Ended() || r.sealed() != nil && w.call.Replayed {
		return
	}
	if l, ok := tool.LoginOf(w.tool); ok {
		w.call.Login(ctx, l)
	}
}

// lack makes a call that waits one that waits for a credential. It says so when it did before,
// and what came is of no use: the key that it was sealed to is gone with its process, say.
func (r *run) lack(w *work, p *execution.Pending) error {
	l := *r.MissingLogin(w.call)
	key, err := r.in.Broker.Ask(l.Name)
	if err != nil {
		w.pending = nil
		w.refuse(err)
		return nil
	}
	l.Name, l.Prompt, l.URL = strings.ToValidUTF8(l.Name, "�"), strings.ToValidUTF8(l.Prompt, "�"), strings.ToValidUTF8(l.URL, "�")
	key.Login = l
	p.Needs, p.Auth = execution.NeedAuth, &key
	if p.Until.IsZero() || key.Expires.Before(p.Until) {
		p.Until = key.Expires
	}
	reasons := []string{p.Reason, fmt.Sprintf("The agent %s needs the credential %s for %s.", r.turn.Info().Agent, l.Name, w.call.Name)}
	if p.Reason == "" {
		reasons = reasons[1:]
	}
	if w.unread == nil {
		p.Reason = strings.Join(reasons, " ")
		return nil
	}
	again := "It is asked for again: " + failure.Plain(w.unread) + "."
	p.Reason = strings.Join(append(reasons, again), " ")
	return r.Events.Emit(event.Warning{
		Reason:  ReasonAuthAskedAgain,
		Message: fmt.Sprintf("the tool %s lacks a credential once more: %s", w.asked.Name, failure.Plain(w.unread)),
	})
}

// noLogin skips a call that nobody brought a credential for in time.
func (r *run) noLogin(w *work) error {
	w.call.Skip("Not run: nobody gave it the credential that it lacks in time. Ask for it again, if it is still wanted.")
	w.settled()
	return r.Events.Emit(event.Warning{
		Reason:  ReasonAuthTimeout,
		Message: fmt.Sprintf("the tool %s did not run, because nobody brought the credential that it lacks in time", w.asked.Name),
	})
}
