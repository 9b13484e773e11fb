package trace

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Measure sums up what a trace tells of its turn (contract OC-3, OC-21). It looks at nothing
// but the events, so an owner that takes a turn over counts what the one before did, too.
func Measure(events []*troupev1.Event, total time.Duration) *troupev1.TurnMetrics {
	m := &troupev1.TurnMetrics{Total: durationpb.New(total)}
	var plan, routing, execute time.Duration
	timed := 0 // steps of which it is known how long they took
	for _, e := range events {
		switch p := e.GetPayload().(type) {
		case *troupev1.Event_Plan:
			plan += p.Plan.GetDuration().AsDuration()
		case *troupev1.Event_RoutingDecision:
			m.RoutingDecisions++
			routing += p.RoutingDecision.GetDuration().AsDuration()
		case *troupev1.Event_StepStarted:
			if e.GetAttempt() > 1 {
				m.Retries++
			}
		case *troupev1.Event_StepFinished:
			m.TotalSteps++
			if p.StepFinished.GetResult().GetFailure() != nil {
				m.FailedSteps++
			}
			if d := p.StepFinished.GetDuration(); d != nil {
				timed++
				execute += d.AsDuration()
			}
		}
	}
	m.SuccessfulSteps = m.GetTotalSteps() - m.GetFailedSteps()
	m.Plan, m.Routing, m.Execute = durationpb.New(plan), durationpb.New(routing), durationpb.New(execute)
	m.AverageStepDuration = durationpb.New(execute / time.Duration(max(1, timed)))
	return m
}

// Measure sums up what the log tells so far.
func (l *Log) Measure(total time.Duration) *troupev1.TurnMetrics {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Measure(l.items, total)
}

// All are the events so far, stored or not, in their order. They are not to be changed.
func (l *Log) All() []*troupev1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.items)
}

// Length is how many durable events the log has, stored or not.
func (l *Log) Length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.sequence)
}
