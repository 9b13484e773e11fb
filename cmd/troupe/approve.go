package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// replier is part of every command that answers calls that wait.
type replier struct {
	sender `embed:""`
}

type approve struct {
	replier `embed:""`
	Session string   `arg:"" help:"Id of the session; troupe get approvals lists what waits."`
	Calls   []string `arg:"" optional:"" name:"call" help:"Ids of the calls. None: all of the session that wait for an approval."`
}

// Help is the long help of the command.
func (approve) Help() string {
	return `The turn goes on where it stopped, and is shown to its end. Exit code 0: answered. 1: failed. 2: no such call waits. 3: something waits again.

Example: troupe approve s1 1-1-2 --actor alice`
}

// Run lets the calls run.
func (a *approve) Run(ctx context.Context, term terminal) error {
	return a.decide(ctx, term, a.Session, a.Calls, troupev1.CallVerdict_CALL_VERDICT_APPROVE, "")
}

type deny struct {
	replier `embed:""`
	Session string   `arg:"" help:"Id of the session; troupe get approvals lists what waits."`
	Calls   []string `arg:"" optional:"" name:"call" help:"Ids of the calls. None: all of the session that wait for an approval."`
	Reason  string   `help:"Why; the model reads it." placeholder:"TEXT"`
	Stop    bool     `help:"End the turn too. Without it the model reads that it may not, and goes on."`
}

// Help is the long help of the command.
func (deny) Help() string {
	return `The tool does not run. The turn goes on, and is shown to its end. Exit code 0: answered. 1: failed. 2: no such call waits. 3: something waits again.

Example: troupe deny s1 1-1-2 --reason "Bob has left; write to Carol."`
}

// Run keeps the calls from running.
func (d *deny) Run(ctx context.Context, term terminal) error {
	verdict := troupev1.CallVerdict_CALL_VERDICT_DENY
	if d.Stop {
		verdict = troupev1.CallVerdict_CALL_VERDICT_STOP
	}
	return d.decide(ctx, term, d.Session, d.Calls, verdict, d.Reason)
}

// decide says the same of the named calls, or of all that wait for an approval; those it
// names before it does.
func (r *replier) decide(ctx context.Context, term terminal, session string, calls []string, verdict troupev1.CallVerdict, why string) error {
	return r.reply(ctx, term, session, func(waiting []*troupev1.PendingCall) ([]*troupev1.CallAnswer, error) {
		if len(calls) == 0 {
			for _, p := range waiting {
				if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_APPROVAL {
					calls = append(calls, p.GetId())
					fmt.Fprintf(term.err, "%s\n", term.decidable(p))
				}
			}
		}
		if len(calls) == 0 {
			return nil, failure.Newf(failure.UserInvalidInput, "troupe", "nothing in session %s waits for an approval; see what waits with: troupe get approvals", session)
		}
		var answers []*troupev1.CallAnswer
		for _, id := range slices.Compact(slices.Sorted(slices.Values(calls))) {
			answers = append(answers, &troupev1.CallAnswer{Id: id, Verdict: verdict, Text: why})
		}
		return answers, nil
	})
}

// reply sends the answers that choose makes of what waits in the session, and shows the rest of
// the turn.
func (r *replier) reply(ctx context.Context, term terminal, session string, choose func([]*troupev1.PendingCall) ([]*troupev1.CallAnswer, error)) error {
	return r.send(ctx, term, func(ctx context.Context, c *client.Client) (*troupev1.OrchestrateRequest, string, error) {
		ctx, cancel := context.WithTimeout(ctx, queryTime)
		defer cancel()
		resp, err := c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: session})
		if err != nil {
			return nil, "", err
		}
		answers, err := choose(resp.GetSession().GetPending())
		if err != nil {
			return nil, "", err
		}
		ids := []string{word(session)}
		for _, a := range answers {
			ids = append(ids, word(a.GetId()))
		}
		req := replied(answers)
		req.SessionId, req.UserId = session, resp.GetSession().GetUserId()
		return req, "say the same of: " + strings.Join(ids, " "), nil
	})
}

func replied(answers []*troupev1.CallAnswer) *troupev1.OrchestrateRequest {
	return &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Answers{Answers: &troupev1.Answers{Answers: answers}}}
}

type answer struct {
	replier `embed:""`
	Session string   `arg:"" help:"Id of the session; troupe get approvals lists what waits."`
	Call    string   `arg:"" help:"Id of the call."`
	Text    []string `arg:"" optional:"" help:"What the tool gave, or why it failed; - reads it from standard input. Nothing for a credential: it is asked for, and not shown."`
	Failed  bool     `help:"The tool failed."`
}

// Help is the long help of the command.
func (answer) Help() string {
	return `Gives the result of a tool that runs at the client, or the credential that a tool lacks. The turn goes on, and is shown to its end. Exit code 0: answered. 1: failed. 2: no such call waits. 3: something waits again.

A credential is typed without being shown, or comes from standard input. It is sealed before it is sent, for the worker that asked, and never an argument: the list of processes shows those to everybody.

Example: date | troupe answer s1 1-1-2 -

A credential: pass show mail | troupe answer s1 1-1-2`
}

// Run brings the result.
func (a *answer) Run(ctx context.Context, term terminal) error {
	text := strings.Join(a.Text, " ")
	if text == "-" {
		var err error
		if text, err = all(term.in); err != nil {
			return err
		}
	}
	if len(text) > execution.MaxAnswer || !utf8.ValidString(text) {
		return failure.Newf(failure.UserInvalidInput, "troupe", "text: want at most %d bytes of UTF-8; store more as an artifact, and encode bytes, for example as base64", execution.MaxAnswer)
	}
	verdict := troupev1.CallVerdict_CALL_VERDICT_SUCCEED
	if a.Failed {
		verdict = troupev1.CallVerdict_CALL_VERDICT_FAIL
	}
	return a.reply(ctx, term, a.Session, func(waiting []*troupev1.PendingCall) ([]*troupev1.CallAnswer, error) {
		for _, p := range waiting {
			if p.GetId() == a.Call && p.GetNeeds() == troupev1.CallNeed_CALL_NEED_AUTH {
				return a.credential(ctx, term, p, text)
			}
		}
		return []*troupev1.CallAnswer{{Id: a.Call, Verdict: verdict, Text: text}}, nil
	})
}

// credential is the answer to a call that lacks one, which is on standard input if text is not
// what was there.
func (a *answer) credential(ctx context.Context, term terminal, p *troupev1.PendingCall, text string) ([]*troupev1.CallAnswer, error) {
	switch given := strings.Join(a.Text, " "); {
	case a.Failed:
		return nil, failure.Newf(failure.UserInvalidInput, "troupe", "--failed: call %s waits for a credential; leave it out, or say troupe deny", a.Call)
	case given != "" && given != "-":
		return nil, failure.Newf(failure.UserInvalidInput, "troupe",
			"call %s waits for a credential, which is no argument: every user of this machine could read it from the list of processes; leave it out, and it is asked for", a.Call)
	case given == "" && term.unseen != nil:
		fmt.Fprintf(term.err, "%s\nThe credential (it is not shown): ", term.decidable(p))
		var err error
		text, err = term.unseen(ctx)
		fmt.Fprintln(term.err)
		if err != nil {
			return nil, err
		}
	case given == "":
		var err error
		if text, err = all(term.in); err != nil {
			return nil, err
		}
	}
	sealed, err := client.Seal(a.Session, p, secret.New(text))
	if err != nil {
		return nil, err
	}
	return []*troupev1.CallAnswer{sealed}, nil
}

// all reads what there is, up to a little more than an answer may hold, without the end of
// the last line.
func all(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, execution.MaxAnswer+3))
	return trimEnd(string(b)), err
}
