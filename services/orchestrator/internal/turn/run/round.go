package run

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/step"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// begin decides the first round.
func (t *Turn) begin(work, ctx context.Context) (state, error) {
	t.unwatch = t.events.WatchTime(work, ctx, t.begun.Timeout, t.driver.Telemetry)
	err := t.decide(func() (err error) {
		t.course, err = cursor.New(t.begun.Flow, t.said.History, t.chooser(ctx))
		return err
	})
	return t.checked(err)
}

// runRound has a round done and decides the next one. The turn has its answer when there is none.
func (t *Turn) runRound(work, ctx context.Context) (state, error) {
	results, err := t.round(work, ctx)
	if err != nil {
		return stopping, err
	}
	if err := t.decide(func() error { return t.course.Advance(results) }); err != nil {
		return stopping, err
	}
	if err := t.storeFailures(work, results); err != nil {
		return stopping, err
	}
	return t.checked(nil)
}

// checked is the state after a decision about the next round.
func (t *Turn) checked(err error) (state, error) {
	if err != nil {
		return stopping, err
	}
	if err := t.checkWorkflow(t.course.Round()); err != nil || len(t.course.Round()) == 0 {
		return stopping, err
	}
	return running, nil
}

// decide has the routing authority decide, and notes how long that took. A course has no clock.
func (t *Turn) decide(what func() error) error {
	began := time.Now()
	err := what()
	t.deciding = time.Since(began)
	return err
}

// storeFailures waits until the failures of a round are stored, if there are any. Only the trace has
// them, and the way of the turn depends on them. Without them, an orchestrator that takes over might
// reach other steps under the same numbers, or run a tool again under another number.
func (t *Turn) storeFailures(work context.Context, round []execution.Result) error {
	if slices.ContainsFunc(round, func(r execution.Result) bool { return r.Failure != nil }) {
		return t.events.Stored(work)
	}
	return nil
}

// round has the steps of a round done, except those that an earlier owner has finished, and returns
// their results in order.
func (t *Turn) round(work, ctx context.Context) ([]execution.Result, error) {
	tasks := t.course.Round()
	var open []cursor.Task
	for i, recovered := range cursor.PriorResults(tasks, t.recovered(), t.reached()) {
		task := tasks[i]
		if recovered == nil {
			open = append(open, task)
			continue
		}
		if t.events.NeedsEnd(task.Number) {
			if err := errors.Join(t.publishDecision(ctx, task), t.events.Recovered(ctx, *recovered)); err != nil {
				return nil, err
			}
		}
		t.add(task, *recovered)
	}
	for _, task := range open {
		if err := t.publishDecision(ctx, task); err != nil {
			return nil, err
		}
	}
	if err := t.events.Settle(work); err != nil {
		return nil, err
	}
	results, err := t.steps.Run(work, ctx, t.course, open, t.said)
	if err != nil {
		return nil, err
	}
	for i, task := range open {
		t.add(task, results[i])
	}
	slices.SortFunc(t.said.Results, func(a, b execution.Result) int { return cmp.Compare(a.Step, b.Step) })
	return t.said.Results[len(t.said.Results)-len(tasks):], nil
}

// recovered are the results of steps that need not run: an earlier owner saw them committed or failed,
// or the turn inherits them.
func (t *Turn) recovered() []execution.Result {
	return append(slices.Clone(t.begun.Turn.Steps), t.events.PriorFailures()...)
}

// reached is the last step that is known to have begun before this turn; 0 when there was no such turn.
func (t *Turn) reached() int {
	last := publish.AnsweredStep(t.begun.Turn)
	for number := range t.begun.Rerun {
		last = max(last, number)
	}
	return last
}

// add makes a result part of the turn. What the agent said is in the session now, unless the step was
// silent.
func (t *Turn) add(task cursor.Task, r execution.Result) {
	t.said.Results = append(t.said.Results, r)
	if r.Failure != nil {
		return
	}
	t.said.Base = max(t.said.Base, r.Sequence) // an inherited step lies below
	if !task.IsHidden() && r.Text != "" {
		said := conversation.Assistant(r.Agent, r.Text)
		said.Untrusted = r.Untrusted
		said.Sequence, said.Turn = r.Sequence, t.begun.Turn.Number
		t.said.History = append(t.said.History, said)
	}
}

// publishDecision publishes who works next, and at what. A choice was published when it was made.
func (t *Turn) publishDecision(ctx context.Context, task cursor.Task) error {
	if n := task.Decision.Choice; n > 0 && t.events.Choice(n) != nil {
		return nil
	}
	task.Decision.Duration = t.deciding
	decision := task.Decision.Proto()
	decision.Number, decision.Task = int32(task.Number), conversation.Brief(task.Decision.Step.Task, publish.MaxText)
	return t.events.Write(ctx, troupev1.Stage_STAGE_ROUTE, &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: decision}})
}

// chooser has the routing authority choose among agents. A choice that an earlier owner published, or
// that the turn inherits, is followed and never made again, because steps may have run by it.
func (t *Turn) chooser(ctx context.Context) cursor.Selector {
	flow := t.begun.Flow
	return func(number, next int, s workflow.Step) (routing.Decision, error) {
		if choice := cmp.Or(t.events.Choice(number), t.begun.Request.Choice(number)); choice != nil {
			return routing.DecisionFromRecord(flow, s, choice)
		}
		began := time.Now()
		d, failed := t.driver.Dispatcher.Authority().Agent(flow, s, step.Inquiry(t.begun.Request, t.begun.Turn.Trace, s), t.driver.Dispatcher.AgentCandidate)
		choice := routing.RecordChoice(d, number, time.Since(began))
		if flow.Steps[d.Target].Agent != "" {
			choice.Number = int32(next)
		}
		if err := t.events.Choose(ctx, choice); err != nil {
			return routing.Decision{}, err
		}
		if failed != nil {
			return routing.Decision{}, failed
		}
		t.events.Follow(number, choice)
		return routing.DecisionFromRecord(flow, s, choice)
	}
}
