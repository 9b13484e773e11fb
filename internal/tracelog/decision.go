package tracelog

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// DecisionFromEvent returns the record of the routing decision in an event (contract OC-32), or nil if the event
// contains none. Old events, whose decisions have no type, count as selections.
func DecisionFromEvent(e *troupev1.Event) *troupev1.Decision {
	d := &troupev1.Decision{
		RecordId: fmt.Sprintf("%s-%d", e.GetTraceId(), e.GetSequence()), Time: e.GetTime(), TraceId: e.GetTraceId(), Stage: e.GetStage(),
		Metadata: map[string]string{},
	}
	note := func(key, value string) {
		if value != "" {
			d.Metadata[key] = value
		}
	}
	note("session_id", e.GetSessionId())
	note("turn", strconv.Itoa(int(e.GetTurn())))
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_RoutingDecision:
		r := p.RoutingDecision
		d.Type, d.Target, d.Reason, d.Alternatives, d.Confidence = r.GetType(), r.GetTarget(), r.GetReason(), r.GetAlternatives(), r.GetConfidence()
		if d.GetType() == troupev1.DecisionType_DECISION_TYPE_UNSPECIFIED {
			d.Type = troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION
		}
		if s := r.GetStrategy(); s != troupev1.RoutingStrategy_ROUTING_STRATEGY_UNSPECIFIED {
			note("strategy", strings.ToLower(strings.TrimPrefix(s.String(), "ROUTING_STRATEGY_")))
		}
		note("fallback", r.GetFallback())
		note("route", r.GetStep())
		if r.GetInput() != nil {
			note("task", r.GetInput().GetTask())
			note("needs", strings.Join(r.GetInput().GetConstraints(), ", "))
			note("counter", strconv.FormatUint(r.GetInput().GetCounter(), 10))
		}
		if e.GetStep() > 0 { // the decision is about the tools of a step
			note("step", strconv.Itoa(int(e.GetStep())))
			note("attempt", strconv.Itoa(int(e.GetAttempt())))
			note("agent", e.GetAgent())
			note("instance", e.GetInstanceId())
		}
		var rejected []string
		for _, out := range r.GetRejected() {
			rejected = append(rejected, out.GetId()+" "+out.GetWhy())
		}
		note("rejected", strings.Join(rejected, ", "))
	case *troupev1.Event_StepStarted:
		c := p.StepStarted.GetChoice()
		if c == nil {
			return nil
		}
		d.Type, d.Target, d.Reason, d.Alternatives, d.Confidence = c.GetType(), e.GetInstanceId(), c.GetReason(), c.GetAlternatives(), c.GetConfidence()
		if d.GetType() == troupev1.DecisionType_DECISION_TYPE_UNSPECIFIED {
			d.Type = troupev1.DecisionType_DECISION_TYPE_WORKER_SELECTION
		}
		note("strategy", c.GetStrategy())
		note("fallback", c.GetFallback())
		note("step", strconv.Itoa(int(e.GetStep())))
		note("attempt", strconv.Itoa(int(e.GetAttempt())))
		note("agent", e.GetAgent())
		note("version", p.StepStarted.GetVersion())
		note("counter", strconv.FormatUint(c.GetCounter(), 10))
		var rejected []string
		for _, r := range c.GetRejected() {
			rejected = append(rejected, r.GetInstanceId()+" "+r.GetWhy())
		}
		note("rejected", strings.Join(rejected, ", "))
	default:
		return nil
	}
	if d.GetTime() == nil {
		d.Time = &timestamppb.Timestamp{}
	}
	return d
}
