// Package routing decides which step comes next, and who runs it. Nothing else does (contract OC-13):
// agents ask, and workflows allow. A decision is a pure function of its input and has a reason, so the
// same input always gives the same decision.
//
// Its packages: cursor follows a turn through its workflow, choice decides among agents and tools,
// selection among instances; instances caches the registry, and desired what operators want.
package routing

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Op is the operation of errors that say why there is no next step (OC-6).
const Op = "routing"

// Decision says which step comes next, and why. Step is zero when the turn ends.
type Decision struct {
	Step         workflow.Step
	Reason       string // one sentence for a person
	Strategy     troupev1.RoutingStrategy
	Alternatives []string // other agents that were allowed
	Confidence   float64
	Fallback     string        // agent of the step's default (empty when there is none, or it is the target)
	Duration     time.Duration // how long the decision took; the caller of a cursor sets it, because a cursor has no clock
	// Choice numbers the choices of the turn, from 1 (0 when no strategy chose, so that the decision
	// depends on the workflow and the results alone).
	Choice int
	// Recorded is the record of a choice (nil when no strategy chose).
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

// decisionType returns the type of the decision: routing by an agent, a rule, or a default that replaces the
// choice of an agent.
func (d Decision) decisionType() troupev1.DecisionType {
	if d.Strategy == troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT {
		return troupev1.DecisionType_DECISION_TYPE_FALLBACK
	}
	return troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION
}
