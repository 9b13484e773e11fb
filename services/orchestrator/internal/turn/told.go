package turn

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// What the stages tell beside what was decided and done (contract OC-3).

// maxOutput is how many characters of the answer the aggregate quotes.
const maxOutput = 500

// decide has the routing authority decide, and notes how long it took. A course has no clock.
func (t *turn) decide(what func() error) error {
	began := time.Now()
	err := what()
	t.deciding = time.Since(began)
	return err
}

// plan lays out the steps that are known, those included that an earlier turn did.
func (t *turn) plan() *troupev1.Plan {
	p := plan(t.flow, t.timeout, t.allowed)
	for _, r := range t.turn.Steps {
		if r.Inherited || r.Step < t.answered {
			p.Inherited = append(p.Inherited, &troupev1.InheritedStep{Number: int32(r.Step), Agent: r.Agent, Failed: r.Failure != nil})
		}
	}
	return p
}

// plan lays out the steps of a workflow.
func plan(flow *workflow.Workflow, timeout time.Duration, allowed allowance) *troupev1.Plan {
	began := time.Now()
	p := &troupev1.Plan{Workflow: flow.Name, Entry: flow.Entry, Steps: flow.Reachable()}
	p.StepsCount = int32(len(p.GetSteps()))
	for _, name := range p.GetSteps() {
		p.Agents = append(p.Agents, flow.Steps[name].Agent)
	}
	p.Budget = &troupev1.TurnBudget{Steps: int32(flow.MaxSteps), Limits: allowed.proto()}
	if allowed.Carried != (budget.Amounts{}) {
		p.Budget.Carried = wire.UsedToProto(allowed.Carried)
	}
	if timeout > 0 { // else it was another owner's, who went away before it told
		p.Budget.Time = durationpb.New(timeout)
	}
	p.Duration = durationpb.New(time.Since(began))
	return p
}

// choiceType is what kind of choice it was, as clients see it.
func choiceType(t selection.Type) troupev1.DecisionType {
	if t == selection.StandIn {
		return troupev1.DecisionType_DECISION_TYPE_FALLBACK
	}
	return troupev1.DecisionType_DECISION_TYPE_WORKER_SELECTION
}
