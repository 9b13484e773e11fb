package step

import (
	"context"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/assignment"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
)

// newHandler returns the handler for an attempt. It publishes the events of the attempt and selects the tools that
// the step may use.
func (t *Turn) newHandler(ctx context.Context, a *attempt) dispatch.Handler {
	h := dispatch.Handler{
		OnWaiting: func(agent string, paused bool) error {
			message := "no instance of agent " + agent + " takes the step yet"
			if paused {
				message = "agent " + agent + " is paused; the step waits until it is resumed, or the turn has no time left"
			}
			return t.Events.WriteStep(ctx, a.Origin, &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{
				Reason: "WAITING", Message: message,
			}}})
		},
		OnChosen: func(d selection.Decision) error {
			a.choice = assignment.InstanceChoice(d)
			return nil
		},
		OnStarted: func(in registry.Instance) error {
			a.Origin.Instance = in.ID
			return t.Events.WriteStep(ctx, a.Origin, &troupev1.Event{Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{
				Address: in.Address, Version: in.Version, Choice: a.choice,
			}}})
		},
		OnEvent: func(e *troupev1.Event) error {
			if !mayComeFromWorker(e) {
				t.Events.Logger().Warn("event of a worker dropped: only the orchestrator may send it",
					zap.String("trace", t.Events.TraceID()), zap.String("instance", a.Origin.Instance))
				return nil
			}
			if v := e.GetOwnershipViolation(); v != nil {
				a.violatedKeys = append(a.violatedKeys, v.GetKey())
			}
			return t.Events.WriteStep(ctx, a.Origin, e)
		},
	}
	h.EarlierEntries = func(ctx context.Context, limit int) ([]*troupev1.Event, error) {
		return publish.EarlierEntries(ctx, t.Events, limit)
	}
	if a.Task.Decision.Step.Tools.IsZero() {
		return h
	}
	return t.withToolDecision(ctx, a, h)
}

// withToolDecision returns the handler extended by the decision about which tools the step may use at an instance.
func (t *Turn) withToolDecision(ctx context.Context, a *attempt, h dispatch.Handler) dispatch.Handler {
	step := a.Task.Decision.Step
	var decision *troupev1.RoutingDecision
	publish := func() error {
		return t.Events.WriteStep(ctx, a.Origin, &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: decision}})
	}
	h.SelectTools = func(in registry.Instance) (*troupev1.AllowedTools, error) {
		var allowed *troupev1.AllowedTools
		var failed error
		decision, allowed, failed = t.assignment.ChooseTools(t.services.Dispatcher.Authority(), step, in)
		if failed != nil {
			if err := publish(); err != nil {
				return nil, err
			}
			return nil, failed
		}
		return allowed, nil
	}
	started := h.OnStarted
	h.OnStarted = func(in registry.Instance) error {
		if err := started(in); err != nil {
			return err
		}
		return publish()
	}
	return h
}

// mayComeFromWorker reports whether a worker may send the event. A worker may report events inside its step, but
// none about routes or the turn.
func mayComeFromWorker(e *troupev1.Event) bool {
	switch e.GetPayload().(type) {
	case *troupev1.Event_TextDelta, *troupev1.Event_ModelCall, *troupev1.Event_ToolCallStarted, *troupev1.Event_ToolCallFinished,
		*troupev1.Event_ToolProgress, *troupev1.Event_SubtaskStarted, *troupev1.Event_ToolCallPending, *troupev1.Event_AgentMessage,
		*troupev1.Event_Thinking, *troupev1.Event_Warning, *troupev1.Event_OwnershipViolation, *troupev1.Event_Custom,
		*troupev1.Event_ArtifactUpdate:
		return true
	default:
		return false
	}
}
