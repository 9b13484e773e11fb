package trace

import (
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// StepSummary summarizes the steps of a trace, by step number. It contains the results of a failed turn, and shows
// where another turn may continue (contract OC-26, OC-27).
type StepSummary struct {
	PlannedCount int                          // number of planned steps that run an agent
	Finished     map[int]*troupev1.StepResult // results of the steps that ended
	EndedAt      map[int]time.Time            // when they ended
	Running      map[int]string               // agents of the steps that started and did not end
	Tolerated    map[int]bool                 // whether the step failed and the turn continued
}

// SummarizeSteps builds the summary from all events of a trace.
func SummarizeSteps(events []*troupev1.Event) StepSummary {
	a := StepSummary{Finished: map[int]*troupev1.StepResult{}, EndedAt: map[int]time.Time{}, Running: map[int]string{}, Tolerated: map[int]bool{}}
	decided := map[int32]bool{} // numbers of the decisions seen so far; after a takeover, decisions about open steps are repeated
	for _, e := range events {
		step := int(e.GetStep())
		switch {
		case e.GetPlan() != nil:
			a.PlannedCount = countPlannedSteps(e.GetPlan())
		case e.GetStepStarted() != nil:
			a.Running[step] = e.GetAgent()
		case e.GetStepFinished() != nil:
			delete(a.Running, step)
			a.Finished[step], a.EndedAt[step] = e.GetStepFinished().GetResult(), e.GetTime().AsTime()
		case e.GetRoutingDecision() != nil && step == 0 && !decided[e.GetRoutingDecision().GetNumber()]:
			// All decisions of a round precede the first start of its steps. A decision with a step number
			// concerns a tool of that step.
			decided[e.GetRoutingDecision().GetNumber()] = e.GetRoutingDecision().GetNumber() > 0
			for n, r := range a.Finished {
				a.Tolerated[n] = a.Tolerated[n] || r.GetFailure() != nil
			}
		}
	}
	return a
}

// countPlannedSteps returns how many steps of a plan run an agent. Forks and choices by strategy have no agent.
func countPlannedSteps(p *troupev1.Plan) int {
	if len(p.GetAgents()) == 0 { // an older trace, without agents in its plan
		return int(p.GetStepsCount())
	}
	none := 0
	for _, agent := range p.GetAgents() {
		if agent == "" {
			none++
		}
	}
	return len(p.GetAgents()) - none
}
