package publish

import (
	"context"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/budget"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Usage returns what the turn has used so far.
func (w *Writer) Usage() budget.Amounts { return w.translation.Spending.Used() }

// StepUsage returns what one step of the turn has used so far.
func (w *Writer) StepUsage(step int) budget.Amounts { return w.translation.Spending.UsedByStep(step) }

// warnBudget publishes a warning after an event that brings the use of a kind of budget above the warning
// threshold. Each kind is warned about once per trace.
func (w *Writer) warnBudget(ctx context.Context, e *troupev1.Event) {
	switch e.GetPayload().(type) {
	case *troupev1.Event_ModelCall, *troupev1.Event_ToolCallStarted, *troupev1.Event_SubtaskStarted, *troupev1.Event_StepFinished:
	default:
		return // it used nothing
	}
	for _, due := range w.translation.Spending.DueWarnings() {
		// A warning that cannot be published is logged, and the turn continues.
		_ = w.Write(ctx, troupev1.Stage_STAGE_EXECUTE, &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: due}})
	}
}

// WatchTime publishes one warning when the turn has used most of its timeout, including the time at earlier
// owners. After the caller has called stop, WatchTime publishes nothing more.
func (w *Writer) WatchTime(work, ctx context.Context, timeout time.Duration, t *telemetry.Telemetry) (stop func()) {
	work, cancel := context.WithCancel(work)
	var watching sync.WaitGroup
	watching.Go(func() {
		var broken error
		defer func() { t.Panics.Record(ctx, broken) }()
		defer panics.Recover("turn.watchTime", &broken)
		end, _ := work.Deadline()
		due := time.NewTimer(time.Until(end) - spending.TimeLeftAtWarning(timeout))
		defer due.Stop()
		select {
		case <-work.Done():
			return
		case <-due.C:
		}
		if late := w.translation.Spending.TimeWarning(timeout-time.Until(end), timeout); late != nil {
			// A warning that cannot be published is logged and does not affect the turn.
			_ = w.Write(ctx, max(w.events.Stage(), troupev1.Stage_STAGE_ROUTE), &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: late}})
		}
	})
	return func() { cancel(); watching.Wait() }
}
