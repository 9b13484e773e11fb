package trace

import troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"

// PublishedSteps summarizes what the events of a trace contain about its steps, by step number.
type PublishedSteps struct {
	Finished  map[int]*troupev1.StepResult // steps that have ended
	Started   map[int]*troupev1.Event      // the last start of each step that has not ended
	Retracted map[int]bool                 // whether the text of an unfinished step was retracted
	// Choices holds the routing decisions by strategy, by their numbers. They depended on the state of the mesh at
	// that time, so they are not made again.
	Choices map[int]*troupev1.RoutingDecision
}

// readPublishedSteps builds the summary from all events of a trace.
func readPublishedSteps(events []*troupev1.Event) PublishedSteps {
	p := PublishedSteps{
		Finished: map[int]*troupev1.StepResult{}, Started: map[int]*troupev1.Event{}, Retracted: map[int]bool{}, Choices: ChoicesByNumber(events),
	}
	for _, e := range events {
		step := int(e.GetStep())
		switch {
		case e.GetStepStarted() != nil:
			p.Started[step], p.Retracted[step] = e, false
		case e.GetTextRetracted() != nil:
			p.Retracted[step] = true
		case e.GetStepFinished() != nil:
			delete(p.Started, step)
			p.Finished[step] = e.GetStepFinished().GetResult()
		}
	}
	return p
}

// ChoicesByNumber returns the routing decisions by strategy among the events, by their numbers.
func ChoicesByNumber(events []*troupev1.Event) map[int]*troupev1.RoutingDecision {
	all := map[int]*troupev1.RoutingDecision{}
	for _, e := range events {
		if d := e.GetRoutingDecision(); d.GetChoice() > 0 && d.GetStep() != "" { // without a step, no agent could be chosen
			all[int(d.GetChoice())] = d
		}
	}
	return all
}
