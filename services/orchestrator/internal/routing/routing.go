// Package routing decides which step comes next and who runs it. It is the only place that does (contract OC-13):
// agents make requests, and workflows set limits. A decision is a pure function of its input, so the same input
// always gives the same decision. Each decision has a reason.
//
// Subpackage cursor tracks a turn in its workflow. Subpackage choice decides among agents and tools, and
// selection among instances. Subpackage instances caches the registry, and desired caches the desired states.
package routing

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Op is the operation in errors that say why there is no next step (OC-6).
const Op = "routing"

// Decision says which step comes next, and why. Step is empty when the turn ends.
type Decision struct {
	Step         workflow.Step
	Reason       string // one sentence for people
	Strategy     troupev1.RoutingStrategy
	Alternatives []string // other agents that were allowed
	Confidence   float64
	Fallback     string        // agent of the step's default (empty when there is none, or it is the target)
	Duration     time.Duration // how long the decision took; set by the caller of the cursor, which has no clock
	// ChoiceNumber is the number of this choice in the turn, from 1. It is 0 if no strategy chose, so that the
	// decision depends only on the workflow and the results.
	ChoiceNumber int
	// Record is the stored record of a choice (nil if no strategy chose).
	Record *troupev1.RoutingDecision
}

// EndsTurn reports whether no further step follows.
func (d Decision) EndsTurn() bool { return d.Step.Name == "" }

// Proto returns the decision as clients see it.
func (d Decision) Proto() *troupev1.RoutingDecision {
	if d.Record != nil {
		return d.Record
	}
	return &troupev1.RoutingDecision{
		Target: d.Step.Agent, Step: d.Step.Name, Reason: d.Reason, Strategy: d.Strategy,
		Alternatives: d.Alternatives, Confidence: d.Confidence, Fallback: d.Fallback, Type: d.decisionType(), Duration: durationpb.New(d.Duration),
	}
}

// decisionType returns the type of the decision: by an agent, by a rule, or a default that replaces an agent's
// choice.
func (d Decision) decisionType() troupev1.DecisionType {
	if d.Strategy == troupev1.RoutingStrategy_ROUTING_STRATEGY_DEFAULT {
		return troupev1.DecisionType_DECISION_TYPE_FALLBACK
	}
	return troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION
}
