package wire

import (
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// assignmentFromProto converts the assignment of a step: its goal, task and constraints.
func assignmentFromProto(req *troupev1.ExecuteStepRequest) execution.Assignment {
	a := execution.Assignment{
		Goal: req.GetGoal(), Task: req.GetTask(), ExpectedOutput: req.GetExpectedOutput(), Constraints: req.GetConstraints(),
		Ancestors: req.GetAncestors(),
		Priority:  PriorityFromProto(req.Priority), Tags: req.GetTags(), Timeout: req.GetTimeout().AsDuration(), //nolint:protogetter // nil differs from 0
	}
	if p := req.GetPlan(); p != nil {
		a.Plan = &execution.PlanRequest{Max: int(p.GetMax()), Parallel: p.GetParallel()}
		for _, agent := range p.GetAgents() {
			a.Plan.Agents = append(a.Plan.Agents, execution.PlanAgent{Name: agent.GetName(), Description: agent.GetDescription()})
		}
	}
	return a
}

// PriorityFromProto converts the priority of a request (nil means the default priority).
func PriorityFromProto(p *int32) int {
	if p == nil {
		return execution.DefaultPriority
	}
	return int(*p)
}

func tasksToProto(tasks []execution.PlannedTask) (all []*troupev1.PlannedTask) {
	for _, t := range tasks {
		all = append(all, &troupev1.PlannedTask{Agent: t.Agent, Text: t.Text})
	}
	return all
}

func tasksFromProto(tasks []*troupev1.PlannedTask) (all []execution.PlannedTask) {
	for _, t := range tasks {
		all = append(all, execution.PlannedTask{Agent: t.GetAgent(), Text: t.GetText()})
	}
	return all
}
