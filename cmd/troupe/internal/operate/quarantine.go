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

type quarantineCommand struct {
	remote.Query `embed:""`
	Agent        string `arg:"" help:"Name of the agent."`
	Reason       string `help:"Why, at most 200 characters; other operators see it, and the audit log keeps it." required:"" placeholder:"TEXT"`
}

// Help implements kong.HelpProvider.
func (quarantineCommand) Help() string {
	return "The kill switch. Within 2 s the agent gets no more steps, turns that run one of its steps fail, and the mesh " +
		"rejects calls of its workers. The quarantine survives restarts and ends with troupe release. The table lists the workers " +
		"that have paused; the quarantine does not depend on that. Exit code 0: the agent is quarantined."
}

// Run quarantines the agent.
func (q *quarantineCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.QuarantineAgentResponse
	return q.ShowWithTimeout(ctx, operateTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
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

type releaseCommand struct {
	remote.Query `embed:""`
	Agent        string `arg:"" help:"Name of the quarantined agent."`
	Reason       string `help:"Why, at most 200 characters; the audit log keeps it." placeholder:"TEXT"`
}

// Run releases the agent.
func (r *releaseCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ReleaseAgentResponse
	err := r.ShowWithTimeout(ctx, operateTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ReleaseAgent(ctx, &troupev1.ReleaseAgentRequest{Agent: r.Agent, Reason: r.Reason})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "agent %s is no longer quarantined; instances that were paused before stay paused, until: troupe resume %s\n", r.Agent, r.Agent)
		if len(resp.GetInstances()) == 0 {
			fmt.Fprintln(w, "no instance of it takes steps: none is registered, or each is paused or drains")
			return
		}
		printOutcomes(w, resp.GetInstances())
	})
	return outcomeError(err, resp.GetInstances())
}

// findQuarantine returns the quarantine of an agent (nil if there is none or it cannot be read).
func findQuarantine(ctx context.Context, c *client.Client, agent string) *troupev1.Quarantine {
	resp, err := c.ListAgents(ctx, &troupev1.ListAgentsRequest{})
	if err != nil {
		return nil // the resume itself has succeeded
	}
	for _, a := range resp.GetAgents() {
		if a.GetName() == agent {
			return a.GetQuarantine()
		}
	}
	return nil
}
