package turn

import (
	"context"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// inquiry is what the authority is told of the turn, whatever it decides (contract OC-14).
func (t *turn) inquiry(step workflow.Step) selection.Request {
	return selection.Request{
		TraceID: t.turn.Trace, Profile: t.req.profile(), Goal: conversation.Brief(t.req.Text, maxGoal), Task: step.Name,
		Metadata: t.req.Metadata, Constraints: t.req.Needs, Parent: t.req.Parent.GetTraceId(),
	}
}

// chooser has the authority choose among agents. A choice that an earlier owner told, or the turn
// that this one goes on with, is followed and never made again: steps may have run by it.
func (t *turn) chooser(ctx context.Context) cursor.Selector {
	return func(number, next int, step workflow.Step) (routing.Decision, error) {
		if known := t.choice(number); known != nil {
			return routing.DecisionFromRecord(t.flow, step, known)
		}
		began := time.Now()
		d, failed := t.Dispatcher.Authority().Agent(t.flow, step, t.inquiry(step), t.Dispatcher.AgentCandidate)
		told := routing.RecordChoice(d, number, time.Since(began))
		if t.flow.Steps[d.Target].Agent != "" {
			told.Number = int32(next)
		}
		if err := t.emit(ctx, troupev1.Stage_STAGE_ROUTE, &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: told}}); err != nil {
			return routing.Decision{}, err
		}
		if failed != nil {
			return routing.Decision{}, failed
		}
		t.unsettled = true
		t.told.Choices[number] = told
		return routing.DecisionFromRecord(t.flow, step, told)
	}
}

// choice is one that was made before; nil when none was.
func (t *turn) choice(number int) *troupev1.RoutingDecision {
	if told := t.told.Choices[number]; told != nil {
		return told
	}
	inherited, ok := t.req.Choices[number]
	if !ok {
		return nil
	}
	d := &troupev1.RoutingDecision{}
	if err := proto.Unmarshal(inherited, d); err != nil {
		return nil // it was written by this package
	}
	return d
}

// isChosen reports whether a decision is a choice that this trace tells of.
func (t *turn) isChosen(d routing.Decision) bool {
	return d.Choice > 0 && t.told.Choices[d.Choice] != nil
}

// settled waits until the choices are stored, if there are any: only the trace has them, and the
// way of the turn depends on them. That costs a turn one write in sequence for each round behind a choice.
func (t *turn) settled(work context.Context) error {
	if !t.unsettled {
		return nil
	}
	return t.stored(work)
}

// stored waits until all that was told is stored.
func (t *turn) stored(work context.Context) error {
	err := t.events.Stored(work)
	t.unsettled = t.unsettled && err != nil
	return err
}

// equipped is the handler of an attempt, which says which tools the step may use at an instance.
func (t *turn) equipped(ctx context.Context, a *attempt) dispatch.Handler {
	h := t.handler(ctx, &a.position)
	step := a.task.Decision.Step
	if step.Tools.IsZero() {
		return h
	}
	var told *troupev1.RoutingDecision
	tell := func() error {
		return t.emitAt(ctx, &a.position, &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: told}})
	}
	h.Equip = func(in registry.Instance) (*troupev1.AllowedTools, error) {
		began := time.Now()
		d, failed := t.Dispatcher.Authority().Tool(step, t.inquiry(step), in.Tools)
		told = routing.RecordChoice(d, 0, time.Since(began))
		if failed != nil {
			if err := tell(); err != nil {
				return nil, err
			}
			return nil, failed
		}
		return &troupev1.AllowedTools{Names: d.Chosen()}, nil
	}
	started := h.Started
	h.Started = func(in registry.Instance) error {
		if err := started(in); err != nil {
			return err
		}
		return tell()
	}
	return h
}

// inherited are the labels of a turn that goes on with that of a trace: its way begins with the
// choices of that one, and of those that it went on with.
func (r *Runner) inherited(ctx context.Context, ref trace.Ref, labels Labels) (Labels, error) {
	for after := uint64(0); ; {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]*troupev1.Event, error) {
			return r.Traces.Store().Events(ctx, ref, after, eventPage)
		})
		if err != nil {
			return labels, err
		}
		if labels, err = labels.following(trace.Choices(page)); err != nil || len(page) < eventPage {
			return labels, err
		}
		after = page[len(page)-1].GetSequence()
	}
}

// following are the labels of a turn that is bound to these choices too.
func (l Labels) following(choices map[int]*troupev1.RoutingDecision) (Labels, error) {
	all := map[int][]byte{}
	maps.Copy(all, l.Choices)
	for number, d := range choices {
		text, err := proto.Marshal(d)
		if err != nil {
			return l, err
		}
		all[number] = text
	}
	l.Choices = all
	return l, nil
}

// choosing are the labels of a turn that chooses anew from a step on.
func (l Labels) choosing(step int) Labels {
	l.Choices = maps.Clone(l.Choices)
	maps.DeleteFunc(l.Choices, func(_ int, text []byte) bool {
		d := &troupev1.RoutingDecision{}
		return proto.Unmarshal(text, d) != nil || int(d.GetNumber()) >= step
	})
	return l
}
