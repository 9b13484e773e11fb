package remote

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/pkg/client"
)

// Query holds the flags of every command that makes one call and prints the response.
type Query struct {
	Server `embed:""`
	JSON   bool `name:"json" help:"Print the answer in protobuf JSON."`
}

// Timeout bounds a query.
const Timeout = 10 * time.Second

// Show calls the mesh and prints the response as JSON or as a table.
func (q Query) Show(ctx context.Context, term console.Terminal, ask func(context.Context, *client.Client) (proto.Message, error),
	table func(w *tabwriter.Writer),
) error {
	return q.ShowWithTimeout(ctx, Timeout, term, ask, table)
}

// ShowWithTimeout works like Show with the given timeout.
func (q Query) ShowWithTimeout(ctx context.Context, most time.Duration, term console.Terminal,
	ask func(context.Context, *client.Client) (proto.Message, error), table func(w *tabwriter.Writer),
) error {
	c, conn, err := q.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	resp, err := ask(ctx, c)
	if err != nil {
		return q.ExplainError(err)
	}
	if q.JSON {
		text, err := protojson.MarshalOptions{Multiline: true}.Marshal(resp)
		if err != nil {
			return err
		}
		fmt.Fprintln(term.Out, string(text))
		return nil
	}
	w := tabwriter.NewWriter(term.Out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}
