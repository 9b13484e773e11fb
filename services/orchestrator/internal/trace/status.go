package trace

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Status is the status of a trace and of one of its steps. It is used to authorize the call of a worker.
type Status struct {
	Ended     bool
	TurnEpoch int64 // epoch under which the turn is driven (0 when nothing of the trace is stored yet)
	StepEnded bool  // whether the step has ended; only known to the replica that drives the trace
}

// Status returns the status of a trace and of one of its steps. If another replica drives the trace, it returns
// the stored status, which may be one write behind. Its errors are those of Store.Load.
func (t *Traces) Status(ctx context.Context, ref Ref, step int) (Status, error) {
	if l := t.findLog(ref); l != nil && l.rejectedError() == nil {
		return l.status(step), nil
	}
	stored, err := t.store.Load(ctx, ref)
	if failure.Is(err, failure.NotFound) {
		return Status{}, nil
	}
	return Status{Ended: stored.Record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED, TurnEpoch: stored.Turn.TurnEpoch}, err
}

// status uses only the events of the current epoch, because a step that ended under an earlier epoch may run
// again.
func (l *Log) status(step int) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Ended: l.ended, TurnEpoch: l.turnEpoch}
	for _, e := range l.history.events[l.history.earlierEpochCount:] {
		s.StepEnded = s.StepEnded || e.GetStepFinished() != nil && int(e.GetStep()) == step
	}
	return s
}
