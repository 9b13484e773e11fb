package inspect

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type getApprovalsCommand struct {
	remote.Query `embed:""`
	User         string `help:"Only calls in the sessions of this user." placeholder:"ID"`
}

// Help implements kong.HelpProvider.
func (getApprovalsCommand) Help() string {
	return `Lists the tool calls of all sessions that wait for an approval, for a result from a client, or for a credential.

Example: troupe get approvals, then: troupe approve SESSION CALL`
}

// approvalsTimeout bounds the search through all sessions.
const approvalsTimeout = time.Minute

// Run prints the pending calls. With --json it prints the sessions that have pending calls.
func (g *getApprovalsCommand) Run(ctx context.Context, term console.Terminal) error {
	found := &troupev1.ListSessionsResponse{}
	agents := map[string]string{}
	return g.ShowWithTimeout(ctx, approvalsTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		if found.Sessions, err = listPendingSessions(ctx, c, g.User); err != nil {
			return nil, err
		}
		for _, s := range found.GetSessions() { // the user of each session is shown if it can be read
			if resp, err := c.GetTrace(ctx, &troupev1.GetTraceRequest{TraceId: s.GetLastTraceId()}); err == nil {
				agents[s.GetSessionId()] = resp.GetTrace().GetResult().GetAgent()
			}
		}
		return found, nil
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "SESSION\tCALL\tTOOL\tFOR\tAGENT\tAGE\tTIME\tARGUMENTS")
		for _, s := range found.GetSessions() {
			for _, p := range s.GetPending() {
				console.PrintRow(w, s.GetSessionId(), p.GetId(), p.GetTool(), render.NeededInput(p),
					console.OrDash(agents[s.GetSessionId()]), console.FormatAge(s.GetLastActivity()),
					console.FormatTimeLeft(p.GetUntil()), console.EscapeBeginning(p.GetArguments(), 60))
			}
		}
	})
}

// listPendingSessions returns the sessions that have pending calls, each with its calls.
func listPendingSessions(ctx context.Context, c *client.Client, user string) (found []*troupev1.Session, _ error) {
	for page := ""; ; {
		listed, err := c.Sessions.ListSessions(ctx, &troupev1.ListSessionsRequest{UserId: user, PageSize: 200, PageToken: page})
		if err != nil {
			return nil, err
		}
		for _, s := range listed.GetSessions() {
			if s.GetWaitingTurnId() == "" {
				continue
			}
			resp, err := c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: s.GetSessionId()})
			switch {
			case failure.Is(grpcfailure.FromStatus("troupe", err), failure.NotFound, failure.SessionDeleted):
			case err != nil:
				return nil, err
			case len(resp.GetSession().GetPending()) > 0:
				found = append(found, resp.GetSession())
			}
		}
		if page = listed.GetNextPageToken(); page == "" {
			return found, nil
		}
	}
}
