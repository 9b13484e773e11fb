package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// messageText returns the text of a message and a line for each attached file.
func messageText(m conversation.Message) string {
	lines := []string{m.Text}
	for _, a := range m.Attachments {
		lines = append(lines, "[file "+render.Attachment(wire.BlobToProto(a))+"]")
	}
	return strings.Join(lines, "\n")
}

type getSessionCommand struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the session."`
	Output       string `short:"o" enum:"text,openai" default:"text" help:"Form of the output: text, or openai for messages of the Chat Completions API."`
	Agent        string `help:"With -o openai: the history of this agent with its tool calls and its system prompt." placeholder:"NAME"`
}

// Run prints the session and its messages.
func (g *getSessionCommand) Run(ctx context.Context, term console.Terminal) error {
	switch {
	case g.Output == "openai" && g.JSON:
		return failure.New(failure.UserInvalidInput, "troupe", "--json: the output of -o openai is JSON, but not the answer of the mesh; leave one out")
	case g.Output == "openai":
		return g.export(ctx, term)
	case g.Agent != "":
		return failure.New(failure.UserInvalidInput, "troupe", "--agent: only an export has the history of one agent; add -o openai")
	}
	var s *troupev1.Session
	var messages []*troupev1.Message
	return g.Show(ctx, term, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		resp, err := c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: g.ID})
		if err != nil || g.JSON {
			return resp, err
		}
		s = resp.GetSession()
		messages, err = listAllMessages(ctx, c, g.ID)
		return resp, err
	}, func(w *tabwriter.Writer) {
		console.PrintRow(w, "session", s.GetSessionId())
		console.PrintRow(w, "state", memorywire.SessionFromProto(s).State)
		console.PrintRow(w, "turns", s.GetTurns())
		console.PrintRow(w, "messages", fmt.Sprintf("%d (%d bytes)", s.GetMessages(), s.GetBytes()))
		console.PrintRow(w, "last activity", console.FormatAge(s.GetLastActivity())+" ago")
		console.PrintRow(w, "last trace", s.GetLastTraceId())
		fmt.Fprintln(w)
		for _, m := range wire.MessagesFromProto(messages) {
			fmt.Fprintf(w, "%d  turn %d  %s:\n%s\n\n", m.Sequence, m.Turn, console.EscapeLine(render.Speaker(m)),
				console.Escape(strings.TrimSpace(messageText(m))))
		}
	})
}

// listAllMessages reads all messages of a session, page by page.
func listAllMessages(ctx context.Context, c *client.Client, session string) ([]*troupev1.Message, error) {
	var all []*troupev1.Message
	for after := int64(0); ; after = all[len(all)-1].GetSequence() {
		resp, err := c.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{SessionId: session, AfterSequence: after, PageSize: 1000})
		if err != nil || len(resp.GetMessages()) == 0 {
			return all, err
		}
		all = append(all, resp.GetMessages()...)
	}
}

type getSessionsCommand struct {
	remote.Query `embed:""`
	User         string `help:"Only sessions of this user." placeholder:"ID"`
	Limit        int32  `help:"How many at most, up to 200." default:"20"`
}

// Run lists the sessions, newest first.
func (g *getSessionsCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ListSessionsResponse
	return g.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.Sessions.ListSessions(ctx, &troupev1.ListSessionsRequest{UserId: g.User, PageSize: g.Limit})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "SESSION\tUSER\tSTATE\tTURNS\tMESSAGES\tAGE\tIDLE")
		for _, s := range resp.GetSessions() {
			console.PrintRow(w, s.GetSessionId(), console.OrDash(s.GetUserId()), memorywire.SessionFromProto(s).State,
				s.GetTurns(), s.GetMessages(), console.FormatAge(s.GetCreated()), console.FormatAge(s.GetLastActivity()))
		}
	})
}

type describeSessionCommand struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the session; troupe get sessions lists them."`
}

// Run prints everything about the session except its messages.
func (d *describeSessionCommand) Run(ctx context.Context, term console.Terminal) error {
	var s *troupev1.Session
	var state *troupev1.GetSessionStateResponse
	var artifacts *troupev1.ListArtifactsResponse
	var summary string
	return d.Show(ctx, term, func(ctx context.Context, c *client.Client) (proto.Message, error) {
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
		printSession(w, s, summary)
		var waits []string
		for _, p := range s.GetPending() {
			waits = append(waits, fmt.Sprintf("%s %s for %s, %s: %s", p.GetId(), p.GetTool(), render.NeededInputText(p),
				console.FormatTimeLeft(p.GetUntil()), console.EscapeBeginning(p.GetArguments(), 80)))
		}
		console.PrintItems(w, "waits", waits)
		console.PrintItems(w, "state", slices.Sorted(maps.Keys(state.GetValues())))
		var names []string
		for _, a := range artifacts.GetArtifacts() {
			names = append(names, fmt.Sprintf("%s version %d, %d bytes", a.GetName(), a.GetVersion(), a.GetSize()))
		}
		console.PrintItems(w, "artifacts", names)
	})
}

func printSession(w *tabwriter.Writer, s *troupev1.Session, summary string) {
	console.PrintRow(w, "session", s.GetSessionId())
	console.PrintRow(w, "user", console.OrDash(s.GetUserId()))
	console.PrintRow(w, "state", memorywire.SessionFromProto(s).State)
	console.PrintRow(w, "turns", s.GetTurns())
	console.PrintRow(w, "open turn", console.OrDash(s.GetOpenTurnId()))
	console.PrintRow(w, "last trace", console.OrDash(s.GetLastTraceId()))
	console.PrintRow(w, "made", console.FormatAge(s.GetCreated())+" ago")
	console.PrintRow(w, "last activity", console.FormatAge(s.GetLastActivity())+" ago")
	console.PrintRow(w, "messages", fmt.Sprintf("%d (%d bytes), the last is %d", s.GetMessages(), s.GetBytes(), s.GetLastSequence()))
	console.PrintRow(w, "settings", render.Settings(memorywire.SettingsFromProto(s.GetSettings())))
	if n := s.GetUnsaved(); n > 0 {
		console.PrintRow(w, "unsaved", fmt.Sprintf("%d messages; save them with: troupe session save %s", n, s.GetSessionId()))
	}
	if s.GetSummarized() > 0 {
		console.PrintRow(w, "summary", fmt.Sprintf("of messages up to %d: %s", s.GetSummarized(), console.EscapeBeginning(summary, 80)))
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(s.GetMetadata())) {
		labels = append(labels, name+"="+s.GetMetadata()[name])
	}
	console.PrintItems(w, "metadata", labels)
}
