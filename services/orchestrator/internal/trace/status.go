package trace

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Standing is the status of a trace, as a worker that has one of its steps needs it.
type Standing struct {
	Ended     bool
	TurnEpoch int64 // under which the turn is driven (0 means that nothing of the trace is stored yet)
	Over      bool  // whether the step has ended; known only where the trace is driven
}

// Standing returns the status of a trace and of one of its steps. For a trace that another replica drives
// it is what is stored, which may be one write behind. Modes: those of the store.
func (t *Traces) Standing(ctx context.Context, ref Ref, step int) (Standing, error) {
	if l := t.logOf(ref); l != nil && l.rejection() == nil {
		return l.status(step), nil
	}
	stored, err := t.store.Load(ctx, ref)
	if failure.Is(err, failure.NotFound) {
		return Standing{}, nil
	}
	return Standing{Ended: stored.Record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED, TurnEpoch: stored.Terms.TurnEpoch}, err
}

// status looks only at the events of the current epoch: a step that ended under an earlier one may run
// again.
func (l *Log) status(step int) Standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Standing{Ended: l.ended, TurnEpoch: l.turnEpoch}
	for _, e := range l.history.events[l.history.earlier:] {
		s.Over = s.Over || e.GetStepFinished() != nil && int(e.GetStep()) == step
	}
	return s
}
