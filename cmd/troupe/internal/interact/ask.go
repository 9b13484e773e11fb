package interact

import (
	"context"
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type askCommand struct {
	turnFlags       `embed:""`
	Session         string   `help:"Session to continue (empty means a new one)." placeholder:"ID"`
	User            string   `help:"User that the session belongs to. The first turn decides; sessions of other users are not found." placeholder:"ID"`
	Target          string   `help:"Workflow or agent that should answer (empty means the default workflow)." placeholder:"NAME"`
	File            []string `help:"A file to ask about, at most 1 MiB; it becomes an artifact. Repeat for up to 8, 3 MiB in all." placeholder:"PATH" sep:"none"`
	turnOptionFlags `embed:""`
	originFlags     `embed:""`
	budgetFlags     `embed:""`
	Text            []string `arg:"" optional:"" help:"What to ask. May be left out with --file, --resume and --from."`
}

// Validate rejects a command that has no text, no file and no trace to continue.
func (a *askCommand) Validate() error {
	if err := a.validate(len(a.Text)+len(a.File) > 0); err != nil {
		return err
	}
	if len(a.Text) == 0 && len(a.File) == 0 && a.origin() == nil {
		return errors.New("expected \"<text> ...\", or a --file")
	}
	return nil
}

// Help implements kong.HelpProvider.
func (askCommand) Help() string {
	return `Exit code 0: answered. 1: failed. 2: invalid command. 3: an agent asks back, or a tool call waits for you; the last lines say how to answer.

Example: troupe ask "What may an agent write?"

Example: troupe ask --file report.pdf "What does it say about costs?"

Example: troupe ask --resume 4f3c… continues a turn that failed

Example: troupe ask --from 4f3c… --step 2 "And in winter?" takes another way from its second step`
}

// Run sends the question and prints the turn. The exit code reflects how the turn ended.
func (a *askCommand) Run(ctx context.Context, term console.Terminal) error {
	files, err := client.Files(a.File...)
	if err != nil {
		return err
	}
	limits, err := a.limits()
	if err != nil {
		return err
	}
	req := &troupev1.OrchestrateRequest{
		SessionId: a.Session, UserId: a.User, Target: a.Target, Profile: a.Profile, Needs: a.Need, Metadata: a.Metadata, Parts: files, From: a.origin(),
		Priority: a.Priority, Tags: a.Tag, Budget: limits,
		MaxIterations: a.MaxIterations, ErrorStrategy: errorStrategyToProto(a.ErrorStrategy),
	}
	if len(a.Text) > 0 {
		req.Input = &troupev1.OrchestrateRequest_Text{Text: strings.Join(a.Text, " ")}
	}
	return a.send(ctx, term, func(context.Context, *client.Client) (*troupev1.OrchestrateRequest, string, error) {
		return req, a.repeatHint(), nil
	})
}
