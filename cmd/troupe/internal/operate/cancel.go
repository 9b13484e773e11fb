package operate

import (
	"context"
	"fmt"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type cancelCommand struct {
	remote.Query `embed:""`
	Trace        string `arg:"" help:"Id of the trace; troupe get traces lists them." type:"trace"`
	Reason       string `help:"Why, at most 200 characters; the caller of the turn reads it." placeholder:"TEXT"`
}

// Help implements kong.HelpProvider.
func (cancelCommand) Help() string {
	return `Ends the turn of the trace, also at its worker; the session accepts the next turn. For a trace that has ended it only says how.

Example: troupe cancel 4bf92f3577b34da6a3ce929d0e0e4736 --reason "wrong question"`
}

// Run cancels the turn.
func (c *cancelCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.CancelTraceResponse
	return c.ShowWithTimeout(ctx, operateTimeout, term, func(ctx context.Context, mesh *client.Client) (_ proto.Message, err error) {
		resp, err = mesh.CancelTrace(ctx, &troupev1.CancelTraceRequest{TraceId: c.Trace, Reason: c.Reason})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s\t%s\n", c.Trace, memorywire.OutcomeFromProto(resp.GetTrace().GetResult().GetOutcome()))
	})
}
