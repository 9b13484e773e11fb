package trace

import (
	"context"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
)

type watchCommand struct {
	remote.Server `embed:""`
	After         uint64 `help:"Sequence of the last event that you have seen." default:"0"`
	JSON          bool   `name:"json" help:"Print one Event a line in protobuf JSON."`
	Trace         string `arg:"" help:"Id of the trace; troupe get traces lists them." type:"trace"`
}

// Run prints the events of the trace until its turn ends.
func (w *watchCommand) Run(ctx context.Context, term console.Terminal) error {
	c, conn, err := w.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = (&render.View{Terminal: term, Server: w.Server}).Show(w.JSON, c.Watch(ctx, w.Trace, w.After))
	return w.ExplainError(err)
}
