package assignment

import (
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// InstanceChoice returns the reason why an instance gets a step, in the form that clients see.
func InstanceChoice(d selection.Decision) *troupev1.InstanceChoice {
	choice := &troupev1.InstanceChoice{
		Strategy: string(d.Strategy), Reason: d.Reason, Confidence: d.Confidence, Fallback: d.Fallback, Alternatives: d.Alternatives,
		Type: troupev1.DecisionType_DECISION_TYPE_WORKER_SELECTION, Counter: d.Input.Counter,
	}
	if d.Type == selection.StandIn {
		choice.Type = troupev1.DecisionType_DECISION_TYPE_FALLBACK
	}
	for _, r := range d.Rejected {
		choice.Rejected = append(choice.Rejected, &troupev1.RejectedInstance{InstanceId: r.ID, Why: r.Availability.String(), Detail: r.Detail})
	}
	return choice
}

// ChooseTools decides which tools a step may use at an instance. It returns the decision even when it returns an
// error.
func (t *Turn) ChooseTools(
	authority *routing.Authority, step workflow.Step, in registry.Instance,
) (*troupev1.RoutingDecision, *troupev1.AllowedTools, error) {
	began := time.Now()
	d, err := authority.ChooseTools(step, t.RoutingRequest(step), in.Tools)
	decision := routing.RecordChoice(d, 0, time.Since(began))
	if err != nil {
		return decision, nil, err
	}
	return decision, &troupev1.AllowedTools{Names: d.Chosen()}, nil
}
