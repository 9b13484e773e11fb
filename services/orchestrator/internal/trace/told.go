package trace

import troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"

// Told is what the log says of the steps so far, by their numbers.
type Told struct {
	Finished map[int]*troupev1.StepResult // steps that have ended
	Started  map[int]*troupev1.Event      // the last starts of those that have not
	Reset    map[int]bool                 // what such a step had said is void already
	// Choices are those by strategy, by their numbers: they were made of how things were, and are
	// not made again.
	Choices map[int]*troupev1.RoutingDecision
}

// Told reads the log from the start.
func (l *Log) Told() Told {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := Told{
		Finished: map[int]*troupev1.StepResult{}, Started: map[int]*troupev1.Event{}, Reset: map[int]bool{}, Choices: Choices(l.items),
	}
	for _, e := range l.items {
		step := int(e.GetStep())
		switch {
		case e.GetStepStarted() != nil:
			told.Started[step], told.Reset[step] = e, false
		case e.GetTextRetracted() != nil:
			told.Reset[step] = true
		case e.GetStepFinished() != nil:
			delete(told.Started, step)
			told.Finished[step] = e.GetStepFinished().GetResult()
		}
	}
	return told
}

// Choices are those by strategy that events tell of, by their numbers.
func Choices(events []*troupev1.Event) map[int]*troupev1.RoutingDecision {
	all := map[int]*troupev1.RoutingDecision{}
	for _, e := range events {
		if d := e.GetRoutingDecision(); d.GetChoice() > 0 && d.GetStep() != "" { // else nobody could be chosen
			all[int(d.GetChoice())] = d
		}
	}
	return all
}
