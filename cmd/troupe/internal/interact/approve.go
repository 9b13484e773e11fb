package interact

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// answerFlags holds the flags of every command that answers pending calls.
type answerFlags struct {
	turnFlags `embed:""`
}

type approveCommand struct {
	answerFlags `embed:""`
	Session     string   `arg:"" help:"Id of the session; troupe get approvals lists what waits."`
	Calls       []string `arg:"" optional:"" name:"call" help:"Ids of the calls (none means all of the session that wait for an approval)."`
}

// Help implements kong.HelpProvider.
func (approveCommand) Help() string {
	return `The turn continues where it stopped, and is shown to its end. Exit code 0: answered. 1: failed. 2: no such call waits. 3: something waits again.

Example: troupe approve s1 1-1-2 --actor alice`
}

// Run approves the calls.
func (a *approveCommand) Run(ctx context.Context, term console.Terminal) error {
	return a.sendVerdict(ctx, term, a.Session, a.Calls, troupev1.CallVerdict_CALL_VERDICT_APPROVE, "")
}

type denyCommand struct {
	answerFlags `embed:""`
	Session     string   `arg:"" help:"Id of the session; troupe get approvals lists what waits."`
	Calls       []string `arg:"" optional:"" name:"call" help:"Ids of the calls (none means all of the session that wait for an approval)."`
	Reason      string   `help:"Why; the model reads it." placeholder:"TEXT"`
	Stop        bool     `help:"Also end the turn. Without this the model reads the denial and continues."`
}

// Help implements kong.HelpProvider.
func (denyCommand) Help() string {
	return `The tool does not run. The turn continues and is shown to its end. Exit code 0: answered. 1: failed. 2: no such call waits. 3: something waits again.

Example: troupe deny s1 1-1-2 --reason "Bob has left; write to Carol."`
}

// Run denies the calls.
func (d *denyCommand) Run(ctx context.Context, term console.Terminal) error {
	verdict := troupev1.CallVerdict_CALL_VERDICT_DENY
	if d.Stop {
		verdict = troupev1.CallVerdict_CALL_VERDICT_STOP
	}
	return d.sendVerdict(ctx, term, d.Session, d.Calls, verdict, d.Reason)
}

// sendVerdict sends one verdict for the named calls. If no calls are named, it prints all calls that wait for an
// approval and sends the verdict for them.
func (f *answerFlags) sendVerdict(ctx context.Context, term console.Terminal, session string, calls []string, verdict troupev1.CallVerdict, why string) error {
	return f.sendAnswers(ctx, term, session, func(waiting []*troupev1.PendingCall) ([]*troupev1.CallAnswer, error) {
		if len(calls) == 0 {
			for _, p := range waiting {
				if p.GetNeeds() == troupev1.CallNeed_CALL_NEED_APPROVAL {
					calls = append(calls, p.GetId())
					fmt.Fprintf(term.Err, "%s\n", render.PendingCall(term, p))
				}
			}
		}
		if len(calls) == 0 {
			return nil, failure.Newf(failure.UserInvalidInput, "troupe",
				"nothing in session %s waits for an approval; see what waits with: troupe get approvals", session)
		}
		var answers []*troupev1.CallAnswer
		for _, id := range slices.Compact(slices.Sorted(slices.Values(calls))) {
			answers = append(answers, &troupev1.CallAnswer{Id: id, Verdict: verdict, Text: why})
		}
		return answers, nil
	})
}

// sendAnswers calls choose with the pending calls, sends the answers that it returns, and prints the rest of the
// turn.
func (f *answerFlags) sendAnswers(ctx context.Context, term console.Terminal, session string,
	choose func([]*troupev1.PendingCall) ([]*troupev1.CallAnswer, error),
) error {
	return f.send(ctx, term, func(ctx context.Context, c *client.Client) (*troupev1.OrchestrateRequest, string, error) {
		ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
		defer cancel()
		resp, err := c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: session})
		if err != nil {
			return nil, "", err
		}
		answers, err := choose(resp.GetSession().GetPending())
		if err != nil {
			return nil, "", err
		}
		ids := []string{console.QuoteForShell(session)}
		for _, a := range answers {
			ids = append(ids, console.QuoteForShell(a.GetId()))
		}
		req := answersRequest(answers)
		req.SessionId, req.UserId = session, resp.GetSession().GetUserId()
		return req, "say the same of: " + strings.Join(ids, " "), nil
	})
}

func answersRequest(answers []*troupev1.CallAnswer) *troupev1.OrchestrateRequest {
	return &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Answers{Answers: &troupev1.Answers{Answers: answers}}}
}
