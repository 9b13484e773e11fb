// Package routing decides who works next. It is the only place that does (contract OC-13):
// agents ask, workflows allow. A decision is a pure function of its input, so that the
// same input gives the same decision, and every decision has a reason.
package routing

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Op is the operation of errors that say why there is no next step (OC-6).
const Op = "routing"

// Decision says which step comes next, and why. Step is empty when the turn is over.
type Decision struct {
	Step         workflow.Step
	Reason       string // one sentence for a person
	Strategy     troupev1.RoutingStrategy
	Alternatives []string // agents that were allowed too
	Confidence   float64
	Fallback     string        // the agent that would have come for want of a choice; empty: none, or it is the target
	Duration     time.Duration // to decide. A course leaves it to its caller, for it has no clock.
	// Choice is which one of the choices of the turn it is, from 1; 0 when nothing was chosen by
	// strategy. Then the decision is a function of the workflow and the results alone.
	Choice int
	// Recorded is such a choice as it is recorded.
	Recorded *troupev1.RoutingDecision
}

// EndsTurn reports whether the turn is over.
func (d Decision) EndsTurn() bool { return d.Step.Name == "" }

// Proto is the decision as clients see it.
func (d Decision) Proto() *troupev1.RoutingDecision {
	if d.Recorded != nil {
		return d.Recorded
	}
	return &troupev1.RoutingDecision{
		Target: d.Step.Agent, Step: d.Step.Name, Reason: d.Reason, Strategy: d.Strategy,
		Alternatives: d.Alternatives, Confidence: d.Confidence, Fallback: d.Fallback, Type: d.decisionType(), Duration: durationpb.New(d.Duration),
	}
}

// decisionType is what the decision is about: a default stands in for what an agent should have chosen.
func (d Decision) decisionType() troupev1.DecisionType {
	if d.Strategy == troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT {
		return troupev1.DecisionType_DECISION_TYPE_FALLBACK
	}
	return troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION
}
