package operate

import (
	"context"
	"fmt"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type quarantine struct {
	remote.Query `embed:""`
	Agent        string `arg:"" help:"Name of the agent."`
	Reason       string `help:"Why, at most 200 characters; other operators see it, and the audit log keeps it." required:"" placeholder:"TEXT"`
}

// Help is the long help of the command.
func (quarantine) Help() string {
	return "The kill switch. Within 2 s the agent gets no step anywhere, turns that run a step of it fail, and the mesh refuses the calls of its workers; it stays so, whatever is restarted, until troupe release. The table says which workers have paused, which does not matter to that. Exit code 0: it is shut out."
}

// Run shuts the agent out.
func (q *quarantine) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.QuarantineAgentResponse
	return q.ShowWithin(ctx, operateTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.QuarantineAgent(ctx, &troupev1.QuarantineAgentRequest{Agent: q.Agent, Reason: q.Reason})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "agent %s is quarantined; troupe release %s ends that\n", q.Agent, q.Agent)
		if len(resp.GetInstances()) == 0 {
			fmt.Fprintln(w, "no instance of it is registered: is that its name?")
			return
		}
		printOutcomes(w, resp.GetInstances())
	})
}

type release struct {
	remote.Query `embed:""`
	Agent        string `arg:"" help:"Name of the quarantined agent."`
	Reason       string `help:"Why, at most 200 characters; the audit log keeps it." placeholder:"TEXT"`
}

// Run lets the agent in again.
func (r *release) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ReleaseAgentResponse
	err := r.ShowWithin(ctx, operateTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ReleaseAgent(ctx, &troupev1.ReleaseAgentRequest{Agent: r.Agent, Reason: r.Reason})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "agent %s is let in again; instances that were paused before stay so: troupe resume %s ends that\n", r.Agent, r.Agent)
		if len(resp.GetInstances()) == 0 {
			fmt.Fprintln(w, "no instance of it takes steps: none is registered, or each is paused or drains")
			return
		}
		printOutcomes(w, resp.GetInstances())
	})
	return outcomeError(err, resp.GetInstances())
}

// findQuarantine is the quarantine of an agent; nil: there is none, or it is not known.
func findQuarantine(ctx context.Context, c *client.Client, agent string) *troupev1.Quarantine {
	resp, err := c.ListAgents(ctx, &troupev1.ListAgentsRequest{})
	if err != nil {
		return nil // what was asked for is done, and that is what is told
	}
	for _, a := range resp.GetAgents() {
		if a.GetName() == agent {
			return a.GetQuarantine()
		}
	}
	return nil
}
