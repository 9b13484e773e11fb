package operate

import (
	"context"
	"fmt"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

type setSessionCommand struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the session."`
	MaxMessages  *int   `help:"Messages that it may hold, 2 to 10,000 (0 means 100)." placeholder:"N"`
	AutoSave     *bool  `help:"Make each turn part of the history when it ends." negatable:""`
	Compact      string `help:"How it becomes shorter: off, summary, sliding_window or hierarchical." enum:",off,summary,sliding_window,hierarchical" default:""`
	SummaryBy    string `help:"Who writes the summary: rule or model." enum:",rule,model" default:"" placeholder:"WHO"`
	Create       bool   `help:"Create the session if there is none."`
	User         string `help:"User of a session that is created." placeholder:"ID"`
}

// Run changes the named settings and keeps the others.
func (s *setSessionCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ConfigureSessionResponse
	return s.Show(ctx, term, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		found, err := c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: s.ID})
		isNew := s.Create && failure.Is(grpcfailure.FromStatus("troupe", err), failure.NotFound)
		if err != nil && !isNew {
			return nil, err
		}
		settings := s.change(memorywire.SettingsFromProto(found.GetSession().GetSettings()))
		resp, err = c.Sessions.ConfigureSession(ctx, &troupev1.ConfigureSessionRequest{
			SessionId: s.ID, Settings: memorywire.SettingsToProto(settings), IfRevision: found.GetSession().GetRevision(), Create: s.Create, UserId: s.User,
		})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s\t%s\n", s.ID, render.Settings(memorywire.SettingsFromProto(resp.GetSession().GetSettings())))
	})
}

// change returns the settings with those that the user named.
func (s *setSessionCommand) change(to session.Settings) session.Settings {
	if s.MaxMessages != nil {
		to.MaxMessages = *s.MaxMessages
	}
	if s.AutoSave != nil {
		to.NoAutoSave = !*s.AutoSave
	}
	switch s.Compact {
	case "":
	case "off":
		to.AutoCompact, to.Strategy, to.SummaryByModel = false, "", false
	default:
		to.AutoCompact, to.Strategy = true, conversation.Strategy(s.Compact)
	}
	if s.SummaryBy != "" {
		to.SummaryByModel = s.SummaryBy == "model"
	}
	return to
}

type saveSessionCommand struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the session."`
}

// Run saves the session.
func (s *saveSessionCommand) Run(ctx context.Context, term console.Terminal) error {
	return s.Show(ctx, term, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		return c.Sessions.SaveSession(ctx, &troupev1.SaveSessionRequest{SessionId: s.ID})
	}, func(w *tabwriter.Writer) { fmt.Fprintf(w, "%s\tsaved\n", s.ID) })
}
