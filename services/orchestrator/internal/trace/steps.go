package trace

import (
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Steps summarizes the steps of a trace, by step number. It shows the results of a failed turn, and where
// another turn may continue (contract OC-26, OC-27).
type Steps struct {
	Planned   int                          // steps of the plan that an agent runs
	Finished  map[int]*troupev1.StepResult // results of the steps that ended
	Ended     map[int]time.Time            // when they ended
	Open      map[int]string               // agents of the steps that started and did not end
	Tolerated map[int]bool                 // whether the step failed and the turn continued
}

// StepsOf reads events from the first on.
func StepsOf(events []*troupev1.Event) Steps {
	a := Steps{Finished: map[int]*troupev1.StepResult{}, Ended: map[int]time.Time{}, Open: map[int]string{}, Tolerated: map[int]bool{}}
	decided := map[int32]bool{} // decisions that were seen; after a takeover, those about open steps are made again
	for _, e := range events {
		step := int(e.GetStep())
		switch {
		case e.GetPlan() != nil:
			a.Planned = plannedSteps(e.GetPlan())
		case e.GetStepStarted() != nil:
			a.Open[step] = e.GetAgent()
		case e.GetStepFinished() != nil:
			delete(a.Open, step)
			a.Finished[step], a.Ended[step] = e.GetStepFinished().GetResult(), e.GetTime().AsTime()
		case e.GetRoutingDecision() != nil && step == 0 && !decided[e.GetRoutingDecision().GetNumber()]:
			// The decisions of a round come before any of its steps starts. A decision with a step is
			// about a tool of that step.
			decided[e.GetRoutingDecision().GetNumber()] = e.GetRoutingDecision().GetNumber() > 0
			for n, r := range a.Finished {
				a.Tolerated[n] = a.Tolerated[n] || r.GetFailure() != nil
			}
		}
	}
	return a
}

// plannedSteps returns how many steps of a plan an agent runs. A fork and a choice have no agent.
func plannedSteps(p *troupev1.Plan) int {
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
