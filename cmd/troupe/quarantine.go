package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type quarantine struct {
	query  `embed:""`
	Agent  string `arg:"" help:"Name of the agent."`
	Reason string `help:"Why, at most 200 characters; other operators see it, and the audit log keeps it." required:"" placeholder:"TEXT"`
}

// Help is the long help of the command.
func (quarantine) Help() string {
	return "The kill switch. Within 2 s the agent gets no step anywhere, turns that run a step of it fail, and the mesh refuses the calls of its workers; it stays so, whatever is restarted, until troupe release. The table says which workers have paused, which does not matter to that. Exit code 0: it is shut out."
}

// Run shuts the agent out.
func (q *quarantine) Run(ctx context.Context, term terminal) error {
	var resp *troupev1.QuarantineAgentResponse
	return q.within(ctx, verbTime, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.QuarantineAgent(ctx, &troupev1.QuarantineAgentRequest{Agent: q.Agent, Reason: q.Reason})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "agent %s is quarantined; troupe release %s ends that\n", q.Agent, q.Agent)
		if len(resp.GetInstances()) == 0 {
			fmt.Fprintln(w, "no instance of it is registered: is that its name?")
			return
		}
		outcomes(w, resp.GetInstances())
	})
}

type release struct {
	query  `embed:""`
	Agent  string `arg:"" help:"Name of the quarantined agent."`
	Reason string `help:"Why, at most 200 characters; the audit log keeps it." placeholder:"TEXT"`
}

// Run lets the agent in again.
func (r *release) Run(ctx context.Context, term terminal) error {
	var resp *troupev1.ReleaseAgentResponse
	err := r.within(ctx, verbTime, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ReleaseAgent(ctx, &troupev1.ReleaseAgentRequest{Agent: r.Agent, Reason: r.Reason})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "agent %s is let in again; instances that were paused before stay so: troupe resume %s ends that\n", r.Agent, r.Agent)
		if len(resp.GetInstances()) == 0 {
			fmt.Fprintln(w, "no instance of it takes steps: none is registered, or each is paused or drains")
			return
		}
		outcomes(w, resp.GetInstances())
	})
	return verdict(err, resp.GetInstances())
}

// quarantined is the quarantine of an agent; nil: there is none, or it is not known.
func quarantined(ctx context.Context, c *client.Client, agent string) *troupev1.Quarantine {
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

// shutOut is how an agent that is quarantined is shown, in a row.
func shutOut(q *troupev1.Quarantine) string {
	if q == nil {
		return ""
	}
	return fmt.Sprintf("quarantined for %s: %s", ago(q.GetSince()), q.GetReason())
}
