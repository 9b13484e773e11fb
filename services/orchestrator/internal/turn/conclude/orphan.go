package conclude

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// EndOrphan ends the trace of a closed turn whose owner was lost before it stored the last event. A closed turn is
// never taken over, so a repeated request triggers this. If the trace is no longer kept, or never existed,
// EndOrphan stores it again from the turn, which is kept longer (guarantee F13). Every caller then sees the same
// result.
func (c *Closer) EndOrphan(ctx context.Context, req request.Request, fingerprint string, closed session.Turn) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	orphaned, err := c.publisher.Traces.IsOrphaned(ctx, trace.Ref{Tenant: req.Tenant, Trace: closed.Trace})
	if !orphaned || err != nil {
		return err
	}
	return c.EndTrace(ctx, req, fingerprint, closed)
}

// EndTrace ends the trace of a closed turn in place of the lost owner. It also publishes the events that the owner
// left unpublished.
//
// It claims the trace under the highest epoch, because no orchestrator can drive a closed turn. The trace may know a
// higher epoch than the turn, if the memory service has lost writes (guarantee F7).
func (c *Closer) EndTrace(ctx context.Context, req request.Request, fingerprint string, closed session.Turn) error {
	began, claimed := time.Now(), closed
	claimed.Epoch = maxEpoch
	events, err := c.publisher.Open(ctx, publish.Turn{
		Request: req, Turn: claimed, Target: req.Target, Fingerprint: fingerprint, MaxSteps: workflow.DefaultSteps,
	}, true)
	if failure.Is(err, failure.TurnNotOpen) {
		return nil // the owner ended it first
	}
	if err != nil {
		return err
	}
	t := Turn{Request: req, Turn: closed, Target: req.Target, Began: began, Events: events}
	if err := c.publishMissing(ctx, t); err != nil {
		c.publisher.Abandon(ctx, events)
		return err
	}
	return nil
}

// maxEpoch is higher than every epoch of a turn.
const maxEpoch = 1<<53 - 1

// publishMissing publishes the missing events of a closed turn, and its last event.
func (c *Closer) publishMissing(ctx context.Context, t Turn) error {
	if t.Events.EventLog().IsEmpty() {
		if err := t.Events.WriteStart(ctx, 0); err != nil {
			return err
		}
	}
	rest := errors.Join(t.Events.PriorEvents().RetractUnfinished(ctx), t.Events.PriorEvents().WriteMissingSteps(ctx, t.Turn.Steps))
	if err := t.Events.IgnoreFullTrace(rest); err != nil {
		return err
	}
	if t.Turn.Outcome == session.OutcomeCompleted || t.Turn.Outcome.NeedsInput() {
		if err := t.Events.IgnoreFullTrace(publishTotals(ctx, t.Events, t.Turn.Steps)); err != nil {
			return err
		}
	}
	closed := t.Turn
	if why := closed.Failure; why != nil && why.Facts[failure.FactStage] == "" {
		closed.Failure = publish.NewTurnFailure(t.Events, closed.Trace, why)
	}
	c.endTrace(ctx, t, Outcome{Results: closed.Steps}, closed)
	return nil
}
