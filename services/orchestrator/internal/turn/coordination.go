package turn

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/telemetry/structured"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/coordination"
)

// coordinated is the state of the turn behind its last event.
func (t *turn) coordinated(last *troupev1.Event) coordination.State {
	begin := coordination.Turn{SessionID: t.req.Session, Number: t.turn.Number, Messages: t.history}
	if t.flow != nil { // else it is only concluded, and its plan says where it began
		begin.Entry = t.flow.Steps[t.flow.Entry].Agent
	}
	begin.Inherited = slices.DeleteFunc(slices.Clone(t.results), func(r execution.Result) bool { return !r.Inherited && r.Step >= answeredStep(t.turn) })
	return coordination.Start(begin).After(t.events.All()...).After(last)
}

// emitState logs the state with which the turn has ended (SO-10).
func (t *turn) emitState(ctx context.Context, s coordination.State) {
	err := structured.Emit(ctx, t.log, structured.Event{
		Name: structured.OrchestrationComplete, Message: "the state with which a turn has ended",
		TraceID: t.turn.Trace, UserID: t.req.User, Profile: t.req.profile(), Data: s.Data(),
	})
	if err != nil {
		t.log.Error("an event could not be logged", zap.Error(err))
	}
}
