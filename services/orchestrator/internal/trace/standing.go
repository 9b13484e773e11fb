package trace

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Standing is how a trace stands to a worker that acts in one of its steps.
type Standing struct {
	Ended     bool
	TurnEpoch int64 // under which the turn is driven; 0: nothing of the trace is stored yet
	Over      bool  // the step has ended. That is known where the trace is driven.
}

// Standing returns how a trace stands to who has its step. Of one that is driven elsewhere it is what is
// stored, which may be behind by a write. Modes: those of the store.
func (t *Traces) Standing(ctx context.Context, ref Ref, step int) (Standing, error) {
	if l := t.driven(ref); l != nil && l.refusal() == nil {
		return l.standing(step), nil
	}
	stored, err := t.store.Load(ctx, ref)
	if failure.Is(err, failure.NotFound) {
		return Standing{}, nil
	}
	return Standing{Ended: stored.Record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED, TurnEpoch: stored.Terms.TurnEpoch}, err
}

// standing looks at the events of the epoch alone: a step that ended under one before may be done again.
func (l *Log) standing(step int) Standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Standing{Ended: l.ended, TurnEpoch: l.turn}
	for _, e := range l.items[l.since:] {
		s.Over = s.Over || e.GetStepFinished() != nil && int(e.GetStep()) == step
	}
	return s
}

// Under says that the turn is driven under another epoch from here on. It is stored with the next
// events.
func (l *Log) Under(turnEpoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn, l.since = turnEpoch, len(l.items)
}
