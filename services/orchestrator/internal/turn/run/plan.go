package run

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// opened decides how a turn begins: a trace with events has had another owner.
func (t *Turn) opened(context.Context, context.Context) (state, error) {
	if t.events.Events().Empty() {
		return initializing, nil
	}
	return resuming, nil
}

// initialize publishes what was asked and what is planned.
func (t *Turn) initialize(_, ctx context.Context) (state, error) {
	if err := t.events.Started(ctx, t.readyInstances()); err != nil {
		return stopping, err
	}
	err := t.events.Write(ctx, troupev1.Stage_STAGE_PLAN, &troupev1.Event{Payload: &troupev1.Event_Plan{Plan: t.plan()}})
	return beginning, err
}

// resume publishes that the turn has another owner. It fails when the turn is not continued.
func (t *Turn) resume(work, ctx context.Context) (state, error) {
	if err := t.events.RetractOpen(ctx); err != nil {
		return stopping, err
	}
	err := t.events.Warn(ctx, "RESUMED", "the turn goes on after its orchestrator went away; steps that were committed are not run again")
	takeover := t.begun.Takeover
	switch {
	case err != nil:
		return stopping, err
	case takeover != nil && takeover.AbandonErr != nil:
		return stopping, takeover.AbandonErr
	case work.Err() != nil:
		return stopping, context.Cause(work)
	case takeover != nil && takeover.CredentialsLost:
		err = t.events.Warn(ctx, "CREDENTIALS_LOST",
			"the credentials of the request were lost with its orchestrator, for they are stored nowhere; a tool that needs them fails, and the request may be sent again under a new request_id")
	}
	return beginning, err
}

// readyInstances counts the instances that could take a step of this turn.
func (t *Turn) readyInstances() int {
	n := 0
	for _, agent := range t.begun.Flow.Agents() {
		n += t.driver.Roster.Ready(agent)
	}
	return n
}

// plan lays out the steps that are known, with those that an earlier turn ran.
func (t *Turn) plan() *troupev1.Plan {
	p := planOf(t.begun.Flow, t.begun.traceTimeout(), t.events.Allowed())
	for _, r := range t.begun.Turn.Steps {
		if r.Inherited || r.Step < publish.AnsweredStep(t.begun.Turn) {
			p.Inherited = append(p.Inherited, &troupev1.InheritedStep{Number: int32(r.Step), Agent: r.Agent, Failed: r.Failure != nil})
		}
	}
	return p
}

// planOf lays out the steps of a workflow. A timeout of 0 is unknown: an earlier owner had it, and went
// away before it published a plan.
func planOf(flow *workflow.Workflow, timeout time.Duration, allowed request.Allowance) *troupev1.Plan {
	began := time.Now()
	p := &troupev1.Plan{Workflow: flow.Name, Entry: flow.Entry, Steps: flow.Reachable()}
	p.StepsCount = int32(len(p.GetSteps()))
	for _, name := range p.GetSteps() {
		p.Agents = append(p.Agents, flow.Steps[name].Agent)
	}
	p.Budget = &troupev1.TurnBudget{Steps: int32(flow.MaxSteps), Limits: allowed.Proto()}
	if allowed.Carried != (budget.Amounts{}) {
		p.Budget.Carried = wire.UsedToProto(allowed.Carried)
	}
	if timeout > 0 {
		p.Budget.Time = durationpb.New(timeout)
	}
	p.Duration = durationpb.New(time.Since(began))
	return p
}
