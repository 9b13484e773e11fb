package inspect

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type describeInstanceCommand struct {
	remote.Query `embed:""`
	ID           string `arg:"" help:"Id of the instance; troupe get instances lists them."`
	Agent        string `help:"Its agent, when several agents have an instance with this id." placeholder:"NAME"`
}

// Run prints the registration of the instance and the status that its worker reports.
func (d *describeInstanceCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.DescribeInstanceResponse
	return d.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.DescribeInstance(ctx, &troupev1.DescribeInstanceRequest{InstanceId: d.ID, Agent: d.Agent})
		return resp, err
	}, func(w *tabwriter.Writer) {
		in := resp.GetInstance()
		console.PrintRow(w, "instance", in.GetInstanceId())
		console.PrintRow(w, "agent", in.GetAgent())
		console.PrintRow(w, "version", console.OrDash(in.GetVersion()))
		console.PrintRow(w, "address", in.GetAddress())
		console.PrintRow(w, "capabilities", console.OrDash(strings.Join(in.GetCapabilities(), ", ")))
		console.PrintRow(w, "tools", console.OrDash(formatTools(in.GetTools())))
		console.PrintRow(w, "uptime", console.FormatAge(in.GetStarted()))
		console.PrintRow(w, "incarnation", in.GetIncarnation())
		console.PrintRow(w, "registered as", formatInstanceState(in))
		console.PrintRow(w, "desired", formatDesiredState(in))
		if in.GetQuarantine() != nil {
			console.PrintRow(w, "agent", render.Quarantine(in.GetQuarantine()))
		}
		if in.GetUnproven() != "" {
			console.PrintRow(w, "unproven", in.GetUnproven())
		}
		if resp.GetFailure() != nil {
			console.PrintRow(w, "worker", resp.GetFailure().GetMessage())
			return
		}
		console.PrintRow(w, "instructions", console.OrDash(console.EscapeBeginning(resp.GetInstructions(), 80)))
		printStatus(w, resp.GetStatus(), resp.GetMetrics())
	})
}

// formatTools formats tools with their capabilities.
func formatTools(tools []*troupev1.InstanceTool) string {
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

// printStatus prints the status that the worker reports.
func printStatus(w *tabwriter.Writer, s *troupev1.InstanceStatus, m *troupev1.GetMetricsResponse) {
	state := string(instancewire.StateFromProto(s.GetState()))
	if s.GetPausing() {
		state += ", pausing"
	}
	if s.GetDraining() {
		state += ", draining"
	}
	console.PrintRow(w, "state", fmt.Sprintf("%s for %s (version %d)", state, console.FormatAge(s.GetSince()), s.GetStateVersion()))
	console.PrintRow(w, "reason", console.OrDash(s.GetReason()))
	console.PrintRow(w, "lease", formatLeaseState(s.GetLease()))
	console.PrintRow(w, "in flight", fmt.Sprintf("%d of %d", s.GetInFlight(), s.GetCapacity()))
	fmt.Fprintf(w, "steps\t%d, %d failed\nactive\t%s\nstart took\t%s\ntransitions\t%d\n",
		m.GetTotalRequests(), m.GetFailedRequests(), m.GetActiveTime().AsDuration(), m.GetStartupTime().AsDuration(), m.GetStateTransitions())
}

func formatLeaseState(l troupev1.LeaseState) string {
	if l == troupev1.LeaseState_LEASE_STATE_UNSPECIFIED {
		return "-"
	}
	return strings.TrimPrefix(l.String(), "LEASE_STATE_")
}

func formatDesiredState(in *troupev1.Instance) string {
	want := strings.TrimPrefix(in.GetDesired().String(), "DESIRED_STATE_")
	if in.GetDesiredReason() != "" {
		want += ": " + in.GetDesiredReason()
	}
	return want
}

type getInstancesCommand struct {
	remote.Query `embed:""`
	Agent        string `help:"Only instances of this agent." placeholder:"NAME"`
}

// Run prints the instances.
func (g *getInstancesCommand) Run(ctx context.Context, term console.Terminal) error {
	var resp *troupev1.ListInstancesResponse
	return g.Show(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ListInstances(ctx, &troupev1.ListInstancesRequest{Agent: g.Agent, Live: true})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "INSTANCE\tAGENT\tSTATE\tLEASE\tSTEPS\tADDRESS\tVERSION\tUPTIME")
		for _, in := range resp.GetInstances() {
			console.PrintRow(w, in.GetInstanceId(), in.GetAgent(), formatInstanceState(in),
				formatLeaseState(in.GetStatus().GetLease()), formatStepCount(in), in.GetAddress(), console.OrDash(in.GetVersion()), console.FormatAge(in.GetStarted()))
		}
	})
}

// formatStepCount formats the running steps and the capacity. If the worker does not respond, it formats the
// capacity alone.
func formatStepCount(in *troupev1.Instance) string {
	if in.GetStatus() == nil {
		return fmt.Sprintf("?/%d", in.GetCapacity())
	}
	return fmt.Sprintf("%d/%d", in.GetStatus().GetInFlight(), in.GetCapacity())
}

// formatInstanceState formats the registered state and the reasons why the instance receives no steps.
func formatInstanceState(in *troupev1.Instance) string {
	state := string(instancewire.StateFromProto(in.GetState()))
	switch in.GetDesired() {
	case troupev1.DesiredState_DESIRED_STATE_PAUSE:
		if in.GetState() != troupev1.InstanceState_INSTANCE_STATE_PAUSED {
			state += ", to pause"
		}
	case troupev1.DesiredState_DESIRED_STATE_DRAIN:
		state += ", to drain"
	default:
	}
	if in.GetMissing() {
		state += ", missing"
	}
	if in.GetQuarantine() != nil {
		state += ", quarantined"
	}
	if in.GetUnproven() != "" {
		state += ", unproven"
	}
	return state
}
