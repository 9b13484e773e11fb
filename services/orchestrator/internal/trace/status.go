package trace

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Status is the status of a trace and of one of its steps, as needed to check the call of a worker.
type Status struct {
	Ended     bool
	TurnEpoch int64 // under which the turn is driven (0 means that nothing of the trace is stored yet)
	StepEnded bool  // whether the step has ended; known only where the trace is driven
}

// Status returns the status of a trace and of one of its steps. If another replica drives the trace, it is the
// stored status, which may be one write behind. Modes: as the store.
func (t *Traces) Status(ctx context.Context, ref Ref, step int) (Status, error) {
	if l := t.logOf(ref); l != nil && l.rejection() == nil {
		return l.status(step), nil
	}
	stored, err := t.store.Load(ctx, ref)
	if failure.Is(err, failure.NotFound) {
		return Status{}, nil
	}
	return Status{Ended: stored.Record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED, TurnEpoch: stored.Turn.TurnEpoch}, err
}

// status looks only at the events of the current epoch: a step that ended under an earlier one may run
// again.
func (l *Log) status(step int) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Ended: l.ended, TurnEpoch: l.turnEpoch}
	for _, e := range l.history.events[l.history.earlierCount:] {
		s.StepEnded = s.StepEnded || e.GetStepFinished() != nil && int(e.GetStep()) == step
	}
	return s
}
