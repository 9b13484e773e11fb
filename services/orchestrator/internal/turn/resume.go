package turn

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// resume tells that the turn has another owner. It fails when the turn is not gone on with.
func (t *turn) resume(work, ctx context.Context) error {
	if err := t.void(ctx); err != nil {
		return err
	}
	err := t.warn(ctx, "RESUMED", "the turn goes on after its orchestrator went away; steps that were committed are not run again")
	switch {
	case err != nil:
		return err
	case t.hopeless != nil:
		return t.hopeless
	case work.Err() != nil:
		return context.Cause(work)
	case t.lacking:
		return t.warn(ctx, "CREDENTIALS_LOST",
			"the credentials of the request were lost with its orchestrator, for they are stored nowhere; a tool that needs them fails, and the request may be sent again under a new request_id")
	}
	return nil
}

func (t *turn) warn(ctx context.Context, reason, message string) error {
	return t.emit(ctx, troupev1.Stage_STAGE_ROUTE, &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{
		Reason: reason, Message: message,
	}}})
}

// void says that the text is void of the steps that were lost with the owner before.
func (t *turn) void(ctx context.Context) error {
	for _, number := range slices.Sorted(maps.Keys(t.told.Started)) {
		if err := t.voidStep(ctx, number, errOwnerLost); err != nil {
			return err
		}
	}
	return nil
}

// Why what was shown of a step is void.
var (
	errOwnerLost = failure.New(failure.SystemNetwork, "turn", "the orchestrator that drove the step went away")
	errUnheard   = failure.New(failure.SystemNetwork, "turn", "the step was committed, and its worker was not heard to the end; its whole text follows")
)

// voidStep says that the text is void of a step that has begun and not ended, once.
func (t *turn) voidStep(ctx context.Context, number int, why error) error {
	begun := t.told.Started[number]
	if begun == nil || t.told.Reset[number] {
		return nil
	}
	t.told.Reset[number] = true
	return t.reset(ctx, t.where(number, begun.GetAgent()), why, nil)
}

// where is the position of a step of an earlier owner, as far as that told it.
func (t *turn) where(number int, agent string) *position {
	at := &position{number: number, attempt: 1, agent: agent}
	if started := t.told.Started[number]; started != nil {
		at.attempt, at.instance = int(started.GetAttempt()), started.GetInstanceId()
	}
	return at
}

// isTold reports whether the trace needs no end of a step that is done: it has it, or the
// step is of the turn that this one goes on with.
func (t *turn) isTold(number int) bool {
	return t.told.Finished[number] != nil || number < answeredStep(t.turn) || t.inherited(number)
}

// recalled adds the failures that an earlier owner told: they are stored nowhere else, and the
// way of the turn depends on them.
func (t *turn) recalled() {
	for _, number := range slices.Sorted(maps.Keys(t.told.Finished)) {
		if r := t.told.Finished[number]; r.GetFailure() != nil {
			t.known = append(t.known, wire.ResultFromProto(r))
		}
	}
}

// tell tells of a step that has ended, and whose owner did not come to say so.
func (t *turn) tell(ctx context.Context, r execution.Result) error {
	at := t.where(r.Step, r.Agent)
	if r.Text != "" {
		if err := t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: r.Text}}}); err != nil {
			return err
		}
	}
	finished := &troupev1.StepFinished{Result: wire.ResultToProto(r)}
	if began := t.told.Started[r.Step].GetTime(); began != nil {
		finished.Duration = durationpb.New(time.Since(began.AsTime()))
	}
	return t.emitAt(ctx, at, &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: finished}})
}

// catchUp tells of the steps that were committed and are not told.
func (t *turn) catchUp(ctx context.Context, committed []execution.Result) error {
	for _, step := range committed {
		if t.isTold(step.Step) {
			continue
		}
		if err := errors.Join(t.voidStep(ctx, step.Step, errUnheard), t.tell(ctx, step)); err != nil {
			return err
		}
	}
	return nil
}

// ifRoom is an error of telling something before the end of a trace, unless the trace is full: then
// there is room for its end alone.
func (t *turn) ifRoom(err error) error {
	if !failure.Is(err, failure.ResourceQuota) {
		return err
	}
	t.log.Warn("the trace is full, and has not all that was done", zap.String("trace", t.turn.Trace))
	return nil
}

// conclude ends the trace of a closed turn in the place of an owner that went away: with what
// that did not come to say.
func (r *Runner) conclude(ctx context.Context, req Request, fingerprint string, closed session.Turn) error {
	t := &turn{
		Runner: r, log: r.log, req: req, begin: memory.Begin{Fingerprint: fingerprint}, target: req.Target, turn: closed,
		results: closed.Steps, began: time.Now(),
	}
	var err error
	if t.events, err = t.Traces.Open(ctx, t.claim(), true); err != nil {
		if failure.Is(err, failure.TurnNotOpen) {
			return nil // its owner was faster
		}
		return err
	}
	t.opened()
	if err := t.conclude(ctx); err != nil {
		t.Traces.Abandon(ctx, t.events)
		return err
	}
	return nil
}

// conclude tells the rest of a turn that is closed.
func (t *turn) conclude(ctx context.Context) error {
	if t.events.Empty() {
		if err := t.emit(ctx, troupev1.Stage_STAGE_INITIALIZE, started(t.req, t.target, t.turn, 0)); err != nil {
			return err
		}
	}
	if err := t.ifRoom(errors.Join(t.void(ctx), t.catchUp(ctx, t.turn.Steps))); err != nil {
		return err
	}
	if t.turn.Outcome == session.OutcomeCompleted || t.turn.Outcome.Asks() {
		if err := t.ifRoom(t.aggregate(ctx)); err != nil {
			return err
		}
	}
	if why := t.turn.Failure; why != nil && why.Facts[failure.FactStage] == "" {
		t.turn.Failure = t.failed(why)
	}
	t.end(ctx, t.turn)
	return nil
}
