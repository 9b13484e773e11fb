package publish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Reasons why the text of a step is retracted.
var (
	errOwnerLost = failure.New(failure.SystemNetwork, "turn", "the orchestrator that drove the step went away")
	errCutOff    = failure.New(failure.SystemNetwork, "turn",
		"the step was committed, but the stream of its worker broke off; its whole text follows")
)

// PriorEvents holds what earlier owners of the turn published about its steps, and publishes the missing events.
type PriorEvents struct {
	writer    *Writer
	turn      session.Turn
	published trace.PublishedSteps // read by Open and again by WriteMissingSteps
}

// LastAttempt returns the number of the last attempt at a step that an earlier owner published (0 when there is
// none).
func (p *PriorEvents) LastAttempt(step int) int { return int(p.published.Started[step].GetAttempt()) }

// UncommittedResults returns the results of steps that earlier owners published and that no commit has: those of
// failed steps, and those of branches whose calls wait. Only the trace has them, and the next steps depend on them.
func (p *PriorEvents) UncommittedResults() (results []execution.Result) {
	for _, number := range slices.Sorted(maps.Keys(p.published.Finished)) {
		if r := p.published.Finished[number]; r.GetFailure() != nil || len(r.GetPending()) > 0 {
			results = append(results, wire.ResultFromProto(r))
		}
	}
	return results
}

// RetractUnfinished retracts the text of all steps that were unfinished when the earlier owner was lost.
func (p *PriorEvents) RetractUnfinished(ctx context.Context) error {
	for _, number := range slices.Sorted(maps.Keys(p.published.Started)) {
		if err := p.retractOnce(ctx, number, errOwnerLost); err != nil {
			return err
		}
	}
	return nil
}

// retractOnce retracts the text of an unfinished step, unless it is already retracted.
func (p *PriorEvents) retractOnce(ctx context.Context, number int, why error) error {
	begun := p.published.Started[number]
	if begun == nil || p.published.Retracted[number] {
		return nil
	}
	p.published.Retracted[number] = true
	return p.writer.Retract(ctx, p.originOfStep(number, begun.GetAgent()), why, nil)
}

// Retract publishes that the text of an attempt is void. The event includes the usage of the attempt, if the
// worker reported it.
func (w *Writer) Retract(ctx context.Context, at EventOrigin, why error, used *troupev1.BudgetUse) error {
	return w.WriteStep(ctx, at, &troupev1.Event{Payload: &troupev1.Event_TextRetracted{TextRetracted: &troupev1.TextRetracted{
		Failure: grpcfailure.ToProto(why), Used: used,
	}}})
}

// originOfStep returns the origin of a step of an earlier owner, as far as that owner published it.
func (p *PriorEvents) originOfStep(number int, agent string) EventOrigin {
	at := EventOrigin{Number: number, Attempt: 1, Agent: agent}
	if started := p.published.Started[number]; started != nil {
		at.Attempt, at.Instance = int(started.GetAttempt()), started.GetInstanceId()
	}
	return at
}

// NeedsEndEvent reports whether the end of a finished step must still be published. It is false for inherited steps.
func (p *PriorEvents) NeedsEndEvent(number int) bool {
	inherited := func(r execution.Result) bool { return r.Step == number && r.Inherited }
	return p.published.Finished[number] == nil && !slices.ContainsFunc(p.turn.Steps, inherited)
}

// WriteRecoveredStep publishes the text and the end of a finished step that its owner had not published.
func (p *PriorEvents) WriteRecoveredStep(ctx context.Context, r execution.Result) error {
	at := p.originOfStep(r.Step, r.Agent)
	if r.Text != "" {
		if err := p.writer.WriteStep(ctx, at, textDelta(r.Text)); err != nil {
			return err
		}
	}
	finished := &troupev1.StepFinished{Result: wire.ResultToProto(r)}
	if began := p.published.Started[r.Step].GetTime(); began != nil {
		finished.Duration = durationpb.New(time.Since(began.AsTime()))
	}
	return p.writer.WriteStep(ctx, at, &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: finished}})
}

// ReplaceText retracts the text of a step whose worker was lost after the commit, and publishes the whole text. It
// is unknown how much of the text clients received before.
func (w *Writer) ReplaceText(ctx context.Context, at EventOrigin, why error, text string) error {
	if err := w.Retract(ctx, at, why, nil); err != nil || text == "" {
		return err
	}
	return w.WriteStep(ctx, at, textDelta(text))
}

func textDelta(text string) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}}}
}

// WriteMissingSteps publishes the committed steps whose end is missing on the trace.
func (p *PriorEvents) WriteMissingSteps(ctx context.Context, committed []execution.Result) error {
	p.published = p.writer.events.PublishedSteps()
	for _, step := range committed {
		if !p.NeedsEndEvent(step.Step) {
			continue
		}
		if err := errors.Join(p.retractOnce(ctx, step.Step, errCutOff), p.WriteRecoveredStep(ctx, step)); err != nil {
			return err
		}
	}
	return nil
}

// IgnoreFullTrace returns nil for a resource_quota error, because even a full trace has room for its last event.
// It returns any other error unchanged.
func (w *Writer) IgnoreFullTrace(err error) error {
	if !failure.Is(err, failure.ResourceQuota) {
		return err
	}
	w.log.Warn("the trace is full; it lacks some of what was done", zap.String("trace", w.TraceID()))
	return nil
}
