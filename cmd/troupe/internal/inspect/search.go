package inspect

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type searchCommand struct {
	remote.Query `embed:""`
	User         string   `required:"" help:"Whose sessions to search: the latest 100." placeholder:"ID"`
	Limit        int32    `help:"How many messages at most, up to 100." default:"10"`
	Words        []string `arg:"" help:"What to look for."`
}

// Run prints the messages that match, starting with those that contain the most of the words.
func (s *searchCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.SessionServiceSearchMemoryResponse
	return s.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.Sessions.SearchMemory(ctx, &troupev1.SessionServiceSearchMemoryRequest{
			UserId: s.User, Query: strings.Join(s.Words, " "), Limit: s.Limit,
		})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "SCORE\tSESSION\tMESSAGE\tWHO\tTEXT")
		for _, h := range resp.GetHits() {
			m := wire.MessageFromProto(h.GetMessage())
			console.PrintRow(w, fmt.Sprintf("%.2f", h.GetScore()), h.GetSessionId(), m.Sequence, render.Speaker(m), console.EscapeBeginning(m.Text, 80))
		}
	})
}
