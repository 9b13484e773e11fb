package run

import (
	"context"
)

// checkForEarlierOwner chooses the first state of a turn. If the trace has events, an earlier owner has driven the
// turn.
func (t *Turn) checkForEarlierOwner(context.Context, context.Context) (state, error) {
	if t.events.EventLog().IsEmpty() {
		return initializing, nil
	}
	return resuming, nil
}

// initialize publishes the request and the plan.
func (t *Turn) initialize(_, ctx context.Context) (state, error) {
	if err := t.events.WriteStart(ctx, t.countReadyInstances()); err != nil {
		return stopping, err
	}
	err := t.events.WritePlan(ctx, t.begun.Flow)
	return beginning, err
}

// resumeAfterTakeover publishes that the turn has a new owner. It fails when the turn must be abandoned.
func (t *Turn) resumeAfterTakeover(work, ctx context.Context) (state, error) {
	if err := t.events.PriorEvents().RetractUnfinished(ctx); err != nil {
		return stopping, err
	}
	err := t.events.Warn(ctx, "TAKEN_OVER", "the turn continues after its orchestrator went away; steps that were committed are not run again")
	takeover := t.begun.Takeover
	switch {
	case err != nil:
		return stopping, err
	case takeover != nil && takeover.AbandonErr != nil:
		return stopping, takeover.AbandonErr
	case work.Err() != nil:
		return stopping, context.Cause(work)
	case takeover != nil && takeover.CredentialsLost:
		err = t.events.Warn(ctx, "CREDENTIALS_LOST",
			"the credentials of the request were lost with its orchestrator, for they are stored nowhere; "+
				"a tool that needs them fails, and the request may be sent again under a new request_id")
	}
	return beginning, err
}

// countReadyInstances counts the instances that could take a step of this turn.
func (t *Turn) countReadyInstances() int {
	n := 0
	for _, agent := range t.begun.Flow.Agents() {
		n += t.driver.ReadyInstances(agent)
	}
	return n
}
