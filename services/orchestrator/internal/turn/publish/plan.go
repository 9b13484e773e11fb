package publish

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// WritePlan publishes the steps that the turn can enter, together with the steps that an earlier turn ran.
func (w *Writer) WritePlan(ctx context.Context, flow *workflow.Workflow) error {
	p := planFromWorkflow(flow, w.turn.Timeout, w.turn.Allowance)
	for _, r := range w.turn.Turn.Steps {
		if r.Inherited {
			p.Inherited = append(p.Inherited, &troupev1.InheritedStep{Number: int32(r.Step), Agent: r.Agent, Failed: r.Failure != nil})
		}
	}
	return w.Write(ctx, troupev1.Stage_STAGE_PLAN, &troupev1.Event{Payload: &troupev1.Event_Plan{Plan: p}})
}

// planFromWorkflow returns the plan of a turn in a workflow. A timeout of 0 means that it is unknown, because an
// earlier owner was lost before it published a plan.
func planFromWorkflow(flow *workflow.Workflow, timeout time.Duration, allowed request.Allowance) *troupev1.Plan {
	began := time.Now()
	p := &troupev1.Plan{Workflow: flow.Name, Entry: flow.Entry, Steps: flow.Reachable()}
	p.StepsCount = int32(len(p.GetSteps()))
	for _, name := range p.GetSteps() {
		p.Agents = append(p.Agents, flow.Steps[name].Agent)
	}
	p.Budget = &troupev1.TurnBudget{Steps: int32(flow.MaxSteps), Limits: allowed.Proto()}
	if allowed.UsedBefore != (budget.Amounts{}) {
		p.Budget.Carried = wire.UsedToProto(allowed.UsedBefore)
	}
	if timeout > 0 {
		p.Budget.Time = durationpb.New(timeout)
	}
	p.Duration = durationpb.New(time.Since(began))
	return p
}
