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
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// sessionCommands is what can be done to a conversation beside its turns.
type sessionCommands struct {
	Pause   pauseSession   `cmd:"" help:"Set a session aside; its next turn resumes it."`
	Resume  resumeSession  `cmd:"" help:"Make a paused session ready."`
	Compact compactSession `cmd:"" help:"Replace the oldest messages by a summary."`
	Clear   clearSession   `cmd:"" help:"Remove messages, state and artifacts, and keep the session."`
}

type pauseSession struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the session."`
}

// Run pauses the session.
func (p *pauseSession) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.PauseSessionResponse
	return p.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.Sessions.PauseSession(ctx, &troupev1.PauseSessionRequest{SessionId: p.ID})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s\t%s\n", p.ID, memorywire.SessionFromProto(resp.GetSession()).State)
	})
}

type resumeSession struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the session."`
}

// Run resumes the session.
func (r *resumeSession) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ResumeSessionResponse
	return r.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.Sessions.ResumeSession(ctx, &troupev1.ResumeSessionRequest{SessionId: r.ID})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s\t%s\n", r.ID, memorywire.SessionFromProto(resp.GetSession()).State)
	})
}

type compactSession struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the session."`
	Keep         int32  `help:"How many of the latest messages stay." default:"50"`
	Strategy     string `help:"How: summary, sliding_window or hierarchical." enum:"summary,sliding_window,hierarchical" default:"summary"`
	Summary      string `help:"What to say of the messages that go; empty: a summary is made by rule." placeholder:"TEXT"`
}

// Run compacts the session.
func (c *compactSession) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.CompactSessionResponse
	return c.Show(ctx, term, func(ctx context.Context, mesh *client.Client) (_ proto.Message, err error) {
		resp, err = mesh.Sessions.CompactSession(ctx, &troupev1.CompactSessionRequest{
			SessionId: c.ID, KeepRecent: c.Keep, Summary: c.Summary, Strategy: memorywire.StrategyToProto(conversation.Strategy(c.Strategy)),
		})
		return resp, err
	}, func(w *tabwriter.Writer) {
		done := resp.GetCompaction()
		if done.GetMessages() == 0 {
			fmt.Fprintf(w, "%s\tnothing to do\n", c.ID)
			return
		}
		fmt.Fprintf(w, "%s\tmessages %d to %d are a summary now, about %d tokens less\n", c.ID, done.GetFirst(), done.GetLast(), done.GetTokensSaved())
	})
}

type clearSession struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the session."`
}

// Run clears the session.
func (c *clearSession) Run(ctx context.Context, term console.Terminal) error {
	return c.Show(ctx, term, func(ctx context.Context, mesh *client.Client) (proto.Message, error) {
		return mesh.Sessions.ClearSession(ctx, &troupev1.ClearSessionRequest{SessionId: c.ID})
	}, func(w *tabwriter.Writer) { fmt.Fprintf(w, "%s\tcleared\n", c.ID) })
}
