package conclude

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/telemetry/structured"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/coordination"
)

// finalState returns the coordination state after the last event of the turn.
func finalState(t Turn, o Outcome, last *troupev1.Event) coordination.State {
	ownStep := func(r execution.Result) bool { return !r.Inherited }
	return coordination.Start(coordination.Turn{
		SessionID: t.Request.Session, Number: t.Turn.Number, Messages: o.History, EntryAgent: t.EntryAgent,
		Inherited: slices.DeleteFunc(slices.Clone(o.Results), ownStep),
	}).Apply(t.Events.EventLog().Events()...).Apply(last)
}

// logFinalState logs the coordination state with which the turn ended (SO-10).
func logFinalState(ctx context.Context, t Turn, s coordination.State) {
	err := structured.Emit(ctx, t.Events.Logger(), structured.Event{
		Name: structured.OrchestrationComplete, Message: "the state with which a turn has ended",
		TraceID: t.Turn.Trace, UserID: t.Request.User, Profile: t.Request.ProfileOrDefault(), Data: s.LogFields(),
	})
	if err != nil {
		t.Events.Logger().Error("an event could not be logged", zap.Error(err))
	}
}
