package inspect

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type getDecisionsCommand struct {
	remote.Query `embed:""`
	Trace        string `help:"Only decisions of this trace." placeholder:"ID" type:"trace"`
	Type         string `help:"Only this type: ${enum}." enum:"any,agent_selection,worker_selection,tool_selection,subgraph_selection,fallback" default:"any"`
	Limit        int32  `help:"How many at most, up to 200." default:"20"`
}

// Run prints the decisions.
func (g *getDecisionsCommand) Run(ctx context.Context, term console.Terminal) error {
	req := &troupev1.ListDecisionsRequest{
		TraceId: g.Trace, PageSize: g.Limit,
		Type: troupev1.DecisionType(troupev1.DecisionType_value["DECISION_TYPE_"+strings.ToUpper(g.Type)]), // unspecified for "any"
	}
	var resp *troupev1.ListDecisionsResponse
	return g.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ListDecisions(ctx, req)
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "AGE\tTRACE\tTYPE\tTARGET\tSTRATEGY\tCONFIDENCE\tREASON")
		for _, d := range resp.GetDecisions() {
			console.PrintRow(w, console.FormatAge(d.GetTime()), d.GetTraceId(),
				strings.ToLower(strings.TrimPrefix(d.GetType().String(), "DECISION_TYPE_")), d.GetTarget(),
				console.OrDash(d.GetMetadata()["strategy"]), fmt.Sprintf("%.2f", d.GetConfidence()), console.EscapeBeginning(d.GetReason(), 80))
		}
	})
}
