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

// noTarget is recorded as the target of a decision that chose none (OC-6).
const noTarget = "none"

// strategies maps the strategies of agents and tools to their records.
var strategies = map[selection.Strategy]troupev1.RoutingStrategy{
	selection.Capability:   troupev1.RoutingStrategy_ROUTING_STRATEGY_CAPABILITY,
	selection.RoundRobin:   troupev1.RoutingStrategy_ROUTING_STRATEGY_ROUND_ROBIN,
	selection.LoadBalanced: troupev1.RoutingStrategy_ROUTING_STRATEGY_LOAD_BALANCED,
	selection.Priority:     troupev1.RoutingStrategy_ROUTING_STRATEGY_PRIORITY,
	selection.Manual:       troupev1.RoutingStrategy_ROUTING_STRATEGY_MANUAL,
}

// StrategyToProto returns the record of a strategy for agents and tools.
func StrategyToProto(s selection.Strategy) troupev1.RoutingStrategy { return strategies[s] }

// RecordChoice returns a choice among agents or tools as it is published and stored. It holds those parts of
// its input that the turn does not store elsewhere. number counts the choices of the turn, so that a later
// owner finds this one (0 when none has to).
func RecordChoice(d choice.Decision, number int, took time.Duration) *troupev1.RoutingDecision {
	in := d.Input
	name := func(id string) string { return in.Find(id).Name }
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

// choiceType returns the type of a choice.
func choiceType(d choice.Decision) troupev1.DecisionType {
	switch {
	case d.StandIn:
		return troupev1.DecisionType_DECISION_TYPE_FALLBACK
	case d.Type == choice.Tool:
		return troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION
	default:
		return troupev1.DecisionType_DECISION_TYPE_AGENT_SELECTION
	}
}

// DecisionFromRecord returns the decision that a turn recorded. The decision is followed, and not made again.
// It fails with nondeterminism when the workflow does not lead to the recorded step any more.
func DecisionFromRecord(flow *workflow.Workflow, from workflow.Step, r *troupev1.RoutingDecision) (Decision, error) {
	step, ok := flow.Steps[r.GetStep()]
	if !ok || !slices.Contains(from.Routes, r.GetStep()) || step.Agent != r.GetTarget() {
		return Decision{}, failure.Newf(failure.Nondeterminism, Op,
			"the workflow has changed since step %s chose %s of agent %s, and does not lead there any more; say again what you want",
			from.Name, r.GetStep(), r.GetTarget())
	}
	return Decision{
		Step: step, Reason: r.GetReason(), Strategy: r.GetStrategy(), Alternatives: r.GetAlternatives(), Confidence: r.GetConfidence(),
		Fallback: r.GetFallback(), Duration: r.GetDuration().AsDuration(), Choice: int(r.GetChoice()), Recorded: r,
	}, nil
}
