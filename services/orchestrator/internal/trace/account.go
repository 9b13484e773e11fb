package trace

import (
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Account is what the events of a trace tell of its steps, by their numbers: what there is of
// the turn when it fails, and what another turn may go on with (contract OC-26, OC-27).
type Account struct {
	Planned  int                          // steps of the plan
	Finished map[int]*troupev1.StepResult // that ended
	Ended    map[int]time.Time            // when they did
	Open     map[int]string               // agents of those that began and did not end
	Survived map[int]bool                 // that failed, and the turn went on
}

// AccountOf reads events, from the first on.
func AccountOf(events []*troupev1.Event) Account {
	a := Account{Finished: map[int]*troupev1.StepResult{}, Ended: map[int]time.Time{}, Open: map[int]string{}, Survived: map[int]bool{}}
	decided := map[int32]bool{} // steps; who takes the turn over decides again about those that are open
	for _, e := range events {
		step := int(e.GetStep())
		switch {
		case e.GetPlan() != nil:
			a.Planned = planned(e.GetPlan())
		case e.GetStepStarted() != nil:
			a.Open[step] = e.GetAgent()
		case e.GetStepFinished() != nil:
			delete(a.Open, step)
			a.Finished[step], a.Ended[step] = e.GetStepFinished().GetResult(), e.GetTime().AsTime()
		case e.GetRoutingDecision() != nil && step == 0 && !decided[e.GetRoutingDecision().GetNumber()]: // those of a round come before any of its steps begins; tools are decided about in a step
			decided[e.GetRoutingDecision().GetNumber()] = e.GetRoutingDecision().GetNumber() > 0
			for n, r := range a.Finished {
				a.Survived[n] = a.Survived[n] || r.GetFailure() != nil
			}
		}
	}
	return a
}

// Account reads the log.
func (l *Log) Account() Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return AccountOf(l.items)
}

// planned is how many steps of a plan are run by an agent: a fork and a choice are not.
func planned(p *troupev1.Plan) int {
	if len(p.GetAgents()) == 0 { // a trace of before they were told
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
