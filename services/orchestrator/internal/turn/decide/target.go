package decide

import (
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// WithTarget returns an admission for a target. The caller sets its case.
func (d *Decider) WithTarget(begin memory.Begin, target string) Admission {
	return d.withTarget("", begin, target)
}

func (d *Decider) withTarget(c Case, begin memory.Begin, target string) Admission {
	decided := Admission{Case: c, Begin: begin}
	decided.Flow, decided.Target, decided.TargetErr = d.Resolve(target)
	decided.Begin.Window = decided.Flow.Window
	return decided
}

// Resolve finds what a target names. With an error the workflow is empty but for its window. An unknown agent
// is not rejected before the registry was read, because it may exist.
func (d *Decider) Resolve(target string) (*workflow.Workflow, string, error) {
	flow, ok := d.Workflows.Find(target)
	switch {
	case ok:
		return flow, flow.Name, nil
	case target == "":
		return workflow.SingleAgent(""), "", failure.New(failure.NotFound, op, "target: no workflow is declared here; name an agent")
	case d.Instances.Knows(target) || d.Workflows.UsesAgent(target):
		return workflow.SingleAgent(target), target, nil
	case !d.Instances.IsFilled():
		return workflow.SingleAgent(""), "", failure.New(failure.SystemNetwork, op, "the registry of agents cannot be reached yet; try again")
	default:
		return workflow.SingleAgent(""), "", failure.Newf(failure.NotFound, op,
			"target: no workflow or agent is called %q; see ListAgents", target).With("target", target)
	}
}
