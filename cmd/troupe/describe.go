package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type describe struct {
	Instance describeInstance `cmd:"" help:"An instance, as the registry and as its worker know it."`
	Session  describeSession  `cmd:"" help:"A conversation: its state, what it holds and what it remembers."`
	Trace    describeTrace    `cmd:"" help:"What a turn did, as a tree with times, tokens and costs."`
	Workflow describeWorkflow `cmd:"" help:"The steps of a workflow, and what leads from each to the next."`
}

type describeInstance struct {
	query `embed:""`
	ID    string `arg:"" help:"Id of the instance; troupe get instances lists them."`
	Agent string `help:"Its agent, when several have an instance of this id." placeholder:"NAME"`
}

// Run asks the worker and prints what it says.
func (d *describeInstance) Run(ctx context.Context, term terminal) error {
	var resp *troupev1.DescribeInstanceResponse
	return d.run(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.DescribeInstance(ctx, &troupev1.DescribeInstanceRequest{InstanceId: d.ID, Agent: d.Agent})
		return resp, err
	}, func(w *tabwriter.Writer) {
		in := resp.GetInstance()
		row(w, "instance", in.GetInstanceId())
		row(w, "agent", in.GetAgent())
		row(w, "version", orDash(in.GetVersion()))
		row(w, "address", in.GetAddress())
		row(w, "capabilities", orDash(strings.Join(in.GetCapabilities(), ", ")))
		row(w, "tools", orDash(toolbox(in.GetTools())))
		row(w, "uptime", ago(in.GetStarted()))
		row(w, "incarnation", in.GetIncarnation())
		row(w, "registered as", registeredState(in))
		row(w, "desired", wanted(in))
		if in.GetQuarantine() != nil {
			row(w, "agent", shutOut(in.GetQuarantine()))
		}
		if in.GetUnproven() != "" {
			row(w, "unproven", in.GetUnproven())
		}
		if resp.GetFailure() != nil {
			row(w, "worker", resp.GetFailure().GetMessage())
			return
		}
		live(w, resp.GetStatus(), resp.GetMetrics())
	})
}

// toolbox is tools with what they can do.
func toolbox(tools []*troupev1.InstanceTool) string {
	var all []string
	for _, t := range tools {
		text := t.GetName()
		if can := t.GetCapabilities(); len(can) > 0 {
			text += " (" + strings.Join(can, ", ") + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// live prints what the worker says.
func live(w *tabwriter.Writer, s *troupev1.InstanceStatus, m *troupev1.GetMetricsResponse) {
	state := string(instancewire.StateFromProto(s.GetState()))
	if s.GetPausing() {
		state += ", pausing"
	}
	if s.GetDraining() {
		state += ", draining"
	}
	row(w, "state", fmt.Sprintf("%s for %s (version %d)", state, ago(s.GetSince()), s.GetStateVersion()))
	row(w, "reason", orDash(s.GetReason()))
	row(w, "lease", lease(s.GetLease()))
	row(w, "in flight", fmt.Sprintf("%d of %d", s.GetInFlight(), s.GetCapacity()))
	fmt.Fprintf(w, "steps\t%d, %d failed\nactive\t%s\nstart took\t%s\ntransitions\t%d\n",
		m.GetTotalRequests(), m.GetFailedRequests(), m.GetActiveTime().AsDuration(), m.GetStartupTime().AsDuration(), m.GetStateTransitions())
}

func lease(l troupev1.LeaseState) string {
	if l == troupev1.LeaseState_LEASE_STATE_UNSPECIFIED {
		return "-"
	}
	return strings.TrimPrefix(l.String(), "LEASE_STATE_")
}

func wanted(in *troupev1.Instance) string {
	want := strings.TrimPrefix(in.GetDesired().String(), "DESIRED_STATE_")
	if in.GetDesiredReason() != "" {
		want += ": " + in.GetDesiredReason()
	}
	return want
}
