package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type getSessions struct {
	query `embed:""`
	User  string `help:"Only those of a user." placeholder:"ID"`
	Limit int32  `help:"How many at most, up to 200." default:"20"`
}

// Run prints the sessions, those made last first.
func (g *getSessions) Run(ctx context.Context, term terminal) error {
	var resp *troupev1.ListSessionsResponse
	return g.run(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.Sessions.ListSessions(ctx, &troupev1.ListSessionsRequest{UserId: g.User, PageSize: g.Limit})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "SESSION\tUSER\tSTATE\tTURNS\tMESSAGES\tAGE\tIDLE")
		for _, s := range resp.GetSessions() {
			row(w, s.GetSessionId(), orDash(s.GetUserId()), memorywire.SessionFromProto(s).State,
				s.GetTurns(), s.GetMessages(), ago(s.GetCreated()), ago(s.GetLastActivity()))
		}
	})
}

type describeSession struct {
	query `embed:""`
	ID    string `arg:"" help:"Id of the session; troupe get sessions lists them."`
}

// Run prints all that is known of the session but its messages.
func (d *describeSession) Run(ctx context.Context, term terminal) error {
	var s *troupev1.Session
	var state *troupev1.GetSessionStateResponse
	var artifacts *troupev1.ListArtifactsResponse
	var summary string
	return d.run(ctx, term, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		resp, err := c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: d.ID})
		if err != nil || d.JSON {
			return resp, err
		}
		s = resp.GetSession()
		if state, err = c.Sessions.GetSessionState(ctx, &troupev1.GetSessionStateRequest{SessionId: d.ID}); err != nil {
			return nil, err
		}
		if artifacts, err = c.Sessions.ListArtifacts(ctx, &troupev1.ListArtifactsRequest{SessionId: d.ID}); err != nil {
			return nil, err
		}
		if s.GetSummarized() > 0 {
			first, err := c.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{SessionId: d.ID, PageSize: 1})
			if err != nil {
				return nil, err
			}
			if len(first.GetMessages()) > 0 {
				summary = wire.MessageFromProto(first.GetMessages()[0]).Text
			}
		}
		return resp, nil
	}, func(w *tabwriter.Writer) {
		about(w, s, summary)
		var waits []string
		for _, p := range s.GetPending() {
			waits = append(waits, fmt.Sprintf("%s %s for %s, %s: %s", p.GetId(), p.GetTool(), needed(p), left(p.GetUntil()), brief(p.GetArguments(), 80)))
		}
		listed(w, "waits", waits)
		listed(w, "state", slices.Sorted(maps.Keys(state.GetValues())))
		var names []string
		for _, a := range artifacts.GetArtifacts() {
			names = append(names, fmt.Sprintf("%s version %d, %d bytes", a.GetName(), a.GetVersion(), a.GetSize()))
		}
		listed(w, "artifacts", names)
	})
}

func about(w *tabwriter.Writer, s *troupev1.Session, summary string) {
	row(w, "session", s.GetSessionId())
	row(w, "user", orDash(s.GetUserId()))
	row(w, "state", memorywire.SessionFromProto(s).State)
	row(w, "turns", s.GetTurns())
	row(w, "open turn", orDash(s.GetOpenTurnId()))
	row(w, "last trace", orDash(s.GetLastTraceId()))
	row(w, "made", ago(s.GetCreated())+" ago")
	row(w, "last activity", ago(s.GetLastActivity())+" ago")
	row(w, "messages", fmt.Sprintf("%d (%d bytes), the last is %d", s.GetMessages(), s.GetBytes(), s.GetLastSequence()))
	if s.GetSummarized() > 0 {
		row(w, "summary", fmt.Sprintf("of messages up to %d: %s", s.GetSummarized(), brief(summary, 80)))
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(s.GetMetadata())) {
		labels = append(labels, name+"="+s.GetMetadata()[name])
	}
	listed(w, "metadata", labels)
}

// listed prints one of the items a line, behind a name.
func listed(w *tabwriter.Writer, name string, items []string) {
	if len(items) == 0 {
		items = []string{"-"}
	}
	for _, item := range items {
		row(w, name, item)
		name = ""
	}
}

type search struct {
	query `embed:""`
	User  string   `required:"" help:"Whose sessions to search: the latest 100." placeholder:"ID"`
	Limit int32    `help:"How many messages at most, up to 100." default:"10"`
	Words []string `arg:"" help:"What to look for."`
}

// Run prints the messages that hold most of the words.
func (s *search) Run(ctx context.Context, term terminal) error {
	var resp *troupev1.SessionServiceSearchMemoryResponse
	return s.run(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.Sessions.SearchMemory(ctx, &troupev1.SessionServiceSearchMemoryRequest{
			UserId: s.User, Query: strings.Join(s.Words, " "), Limit: s.Limit,
		})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "SCORE\tSESSION\tMESSAGE\tWHO\tTEXT")
		for _, h := range resp.GetHits() {
			m := wire.MessageFromProto(h.GetMessage())
			row(w, fmt.Sprintf("%.2f", h.GetScore()), h.GetSessionId(), m.Sequence, speaker(m), brief(m.Text, 80))
		}
	})
}

// speaker is who said a message.
func speaker(m conversation.Message) string {
	if m.Author != "" {
		return m.Author
	}
	return string(m.Role)
}
