package interact

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
)

type answerCommand struct {
	answerFlags `embed:""`
	Session     string   `arg:"" help:"Id of the session; troupe get approvals lists what waits."`
	Call        string   `arg:"" help:"Id of the call."`
	Text        []string `arg:"" optional:"" help:"Result of the tool, or why it failed (- reads standard input). Omit it for a credential."`
	Failed      bool     `help:"The tool failed."`
}

// Help implements kong.HelpProvider.
func (answerCommand) Help() string {
	return `Gives the result of a tool that runs at the client, or the credential that a tool lacks.
The turn continues and is shown to its end. Exit code 0: answered. 1: failed. 2: no such call waits. 3: something waits again.

A credential is typed without being shown, or comes from standard input. It is encrypted for the worker
that asked before it is sent. It is never an argument, because every user of this machine can list those.

Example: date | troupe answer s1 1-1-2 -

A credential: pass show mail | troupe answer s1 1-1-2`
}

// Run sends the result or the credential.
func (a *answerCommand) Run(ctx context.Context, term console.Terminal) error {
	text := strings.Join(a.Text, " ")
	if text == "-" {
		var err error
		if text, err = readAnswer(term.In); err != nil {
			return err
		}
	}
	if len(text) > execution.MaxAnswerBytes || !utf8.ValidString(text) {
		return failure.Newf(failure.UserInvalidInput, "troupe",
			"text: want at most %d bytes of UTF-8; store more as an artifact, and encode bytes, for example as base64", execution.MaxAnswerBytes)
	}
	verdict := troupev1.CallVerdict_CALL_VERDICT_SUCCEED
	if a.Failed {
		verdict = troupev1.CallVerdict_CALL_VERDICT_FAIL
	}
	return a.sendAnswers(ctx, term, a.Session, func(waiting []*troupev1.PendingCall) ([]*troupev1.CallAnswer, error) {
		for _, p := range waiting {
			if p.GetId() == a.Call && p.GetNeeds() == troupev1.CallNeed_CALL_NEED_AUTH {
				return a.credentialAnswer(ctx, term, p, text)
			}
		}
		return []*troupev1.CallAnswer{{Id: a.Call, Verdict: verdict, Text: text}}, nil
	})
}

// credentialAnswer returns the sealed answer to a call that needs a credential. It rejects a credential that is an
// argument. Unless text was read from standard input before, it reads the credential from the terminal or from
// standard input.
func (a *answerCommand) credentialAnswer(ctx context.Context, term console.Terminal, p *troupev1.PendingCall, text string) ([]*troupev1.CallAnswer, error) {
	switch given := strings.Join(a.Text, " "); {
	case a.Failed:
		return nil, failure.Newf(failure.UserInvalidInput, "troupe", "--failed: call %s waits for a credential; leave it out, or say troupe deny", a.Call)
	case given != "" && given != "-":
		return nil, failure.Newf(failure.UserInvalidInput, "troupe",
			"call %s waits for a credential, which is no argument: every user of this machine could read it from the list of "+
				"processes; leave it out, and it is asked for", a.Call)
	case given == "" && term.ReadHidden != nil:
		fmt.Fprintf(term.Err, "%s\nThe credential (it is not shown): ", render.PendingCall(term, p))
		var err error
		text, err = term.ReadHidden(ctx)
		fmt.Fprintln(term.Err)
		if err != nil {
			return nil, err
		}
	case given == "":
		var err error
		if text, err = readAnswer(term.In); err != nil {
			return nil, err
		}
	}
	sealed, err := client.Seal(a.Session, p, secret.New(text))
	if err != nil {
		return nil, err
	}
	return []*troupev1.CallAnswer{sealed}, nil
}

// readAnswer reads an answer from standard input and removes the final newline. It reads only slightly more than
// the limit, so that the mesh can report a longer answer.
func readAnswer(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, execution.MaxAnswerBytes+3))
	return trimLineEnd(string(b)), err
}
