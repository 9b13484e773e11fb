package inspect

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type getAgentsCommand struct {
	remote.Query `embed:""`
}

// Run prints the agents.
func (g *getAgentsCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ListAgentsResponse
	return g.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ListAgents(ctx, &troupev1.ListAgentsRequest{})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "NAME\tREADY\tVERSION\tWORKFLOWS\tDESCRIPTION")
		for _, a := range resp.GetAgents() {
			about := cmp.Or(render.Quarantine(a.GetQuarantine()), a.GetDescription())
			console.PrintRow(w, a.GetName(), fmt.Sprintf("%d/%d", a.GetReady(), a.GetInstances()),
				console.OrDash(strings.Join(a.GetVersions(), ",")), console.OrDash(strings.Join(a.GetWorkflows(), ",")), console.OrDash(about))
		}
	})
}

type getTracesCommand struct {
	remote.Query `embed:""`
	Limit        int32  `help:"How many at most, up to 200." default:"20"`
	Root         string `help:"Only traces of the run that began with this trace." placeholder:"ID" type:"trace"`

	Quarantined bool `help:"Only quarantined traces: those that crashed every instance that ran them."`
}

// Run prints the traces.
func (g *getTracesCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ListTracesResponse
	return g.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ListTraces(ctx, &troupev1.ListTracesRequest{PageSize: g.Limit, RootTraceId: g.Root, Quarantined: g.Quarantined})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "TRACE\tSESSION\tTURN\tSTATE\tEVENTS\tAGE\tTEXT")
		for _, t := range resp.GetTraces() {
			console.PrintRow(w, t.GetTraceId(), t.GetSessionId(), t.GetTurn(),
				render.TraceState(t), t.GetLastSequence(), console.FormatAge(t.GetStarted()), console.EscapeBeginning(t.GetText(), 40))
		}
	})
}
