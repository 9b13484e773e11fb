package trace

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// MetricsFromEvents returns the metrics of a turn (contract OC-3, OC-21). It uses only the events, so after a
// takeover it includes the work of earlier owners.
func MetricsFromEvents(events []*troupev1.Event, total time.Duration) *troupev1.TurnMetrics {
	m := &troupev1.TurnMetrics{Total: durationpb.New(total)}
	var plan, routing, execute time.Duration
	timed := 0 // steps whose duration is known
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
