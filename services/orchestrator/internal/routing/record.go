package routing

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// noTarget is the recorded target of a decision that chose no candidate (OC-6).
const noTarget = "none"

// strategies maps the strategies for agents and tools to their wire values.
var strategies = map[selection.Strategy]troupev1.RoutingStrategy{
	selection.Capability:   troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY,
	selection.RoundRobin:   troupev1.RoutingStrategy_ROUTING_STRATEGY_ROUND_ROBIN,
	selection.LoadBalanced: troupev1.RoutingStrategy_ROUTING_STRATEGY_LOAD_BALANCED,
	selection.Priority:     troupev1.RoutingStrategy_ROUTING_STRATEGY_PRIORITY,
	selection.Manual:       troupev1.RoutingStrategy_ROUTING_STRATEGY_MANUAL,
}

// StrategyToProto returns the wire value of a strategy for agents and tools.
func StrategyToProto(s selection.Strategy) troupev1.RoutingStrategy { return strategies[s] }

// RecordChoice returns the record of a choice among agents or tools, as it is published and stored. It contains
// the parts of the input that the turn does not store elsewhere. number is the number of the choice in the turn (0
// if it needs none). A later owner of the turn finds the choice by its number.
func RecordChoice(d choice.Decision, number int, took time.Duration) *troupev1.RoutingDecision {
	in := d.Input
	name := func(id string) string { return in.FindCandidate(id).Name }
	r := &troupev1.RoutingDecision{
		Target: noTarget, Reason: d.Reason, Strategy: strategies[d.Strategy], Confidence: d.Confidence, Type: choiceType(d), Choice: int32(number),
		Duration: durationpb.New(took),
		Input:    &troupev1.RoutingInput{Task: in.Task, Constraints: in.Needs, Counter: in.Counter, Names: in.Names},
	}
	if d.Target != "" {
		r.Target = name(d.Target)
	}
	if in.Type == choice.Agent {
		r.Step = d.Target
	}
	for _, id := range d.Alternatives {
		r.Alternatives = append(r.Alternatives, name(id))
	}
	if i := slices.IndexFunc(r.GetAlternatives(), func(other string) bool { return other != r.GetTarget() }); i >= 0 && in.Type == choice.Agent {
		r.Fallback = r.GetAlternatives()[i]
	}
	for _, out := range d.Rejected {
		r.Rejected = append(r.Rejected, &troupev1.RejectedCandidate{Id: out.ID, Why: out.Availability.String()})
	}
	for _, c := range in.Candidates {
		shown := &troupev1.RoutingCandidate{
			Id: c.ID, Name: c.Name, Type: string(c.Type), Capabilities: c.Capabilities, Metadata: c.Metadata,
			Available: c.Available, Load: c.Load, Priority: int32(c.Priority),
		}
		if !c.Available {
			shown.Why = c.Availability.String()
		}
		r.Input.Candidates = append(r.GetInput().GetCandidates(), shown)
	}
	return r
}

// choiceType returns the decision type of a choice.
func choiceType(d choice.Decision) troupev1.DecisionType {
	switch {
	case d.IsStandIn:
		return troupev1.DecisionType_DECISION_TYPE_FALLBACK
	case d.Type == choice.Tool:
		return troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION
	default:
		return troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION
	}
}

// DecisionFromRecord returns the decision that a turn recorded, without deciding again. It fails with
// nondeterminism if the workflow no longer leads to the recorded step.
func DecisionFromRecord(flow *workflow.Workflow, from workflow.Step, r *troupev1.RoutingDecision) (Decision, error) {
	step, ok := flow.Steps[r.GetStep()]
	if !ok || !slices.Contains(from.Routes, r.GetStep()) || step.Agent != r.GetTarget() {
		return Decision{}, failure.Newf(failure.Nondeterminism, Op,
			"the workflow has changed since step %s chose %s of agent %s, and does not lead there any more; say again what you want",
			from.Name, r.GetStep(), r.GetTarget())
	}
	return Decision{
		Step: step, Reason: r.GetReason(), Strategy: r.GetStrategy(), Alternatives: r.GetAlternatives(), Confidence: r.GetConfidence(),
		Fallback: r.GetFallback(), Duration: r.GetDuration().AsDuration(), ChoiceNumber: int(r.GetChoice()), Record: r,
	}, nil
}
