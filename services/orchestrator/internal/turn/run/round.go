package run

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/assignment"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// decideFirstRound decides the first round of steps.
func (t *Turn) decideFirstRound(work, ctx context.Context) (state, error) {
	t.unwatch = t.events.WatchTime(work, ctx, t.begun.Timeout, t.driver.Telemetry)
	err := t.timeDecision(func() (err error) {
		t.cursor, err = cursor.New(t.begun.Flow, t.conversation.History, t.newSelector(ctx))
		return err
	})
	return t.stateAfterDecision(err)
}

// runRound runs a round of steps and decides the next one. The turn has its answer when there is no next round.
func (t *Turn) runRound(work, ctx context.Context) (state, error) {
	results, err := t.runOpenSteps(work, ctx)
	if err != nil {
		return stopping, err
	}
	if err := t.timeDecision(func() error { return t.cursor.Advance(results) }); err != nil {
		return stopping, err
	}
	if err := t.awaitFailuresStored(work, results); err != nil {
		return stopping, err
	}
	return t.stateAfterDecision(nil)
}

// stateAfterDecision returns the state that follows the decision about the next round.
func (t *Turn) stateAfterDecision(err error) (state, error) {
	if err != nil {
		return stopping, err
	}
	if err := checkWorkflow(t.begun, len(t.conversation.Results), t.cursor.Round()); err != nil || len(t.cursor.Round()) == 0 {
		return stopping, err
	}
	return running, nil
}

// timeDecision calls a function that makes a decision, and records how long it took. The cursor cannot, because it
// has no clock.
func (t *Turn) timeDecision(what func() error) error {
	began := time.Now()
	err := what()
	t.decisionTime = time.Since(began)
	return err
}

// awaitFailuresStored waits until the failures of a round, if any, are stored. Only the trace has them, and they
// determine how the turn continues. Without them, an orchestrator that takes over might give the same numbers to
// other steps, or run a tool again under another number.
func (t *Turn) awaitFailuresStored(work context.Context, round []execution.Result) error {
	if slices.ContainsFunc(round, func(r execution.Result) bool { return r.Failure != nil }) {
		return t.events.AwaitStored(work)
	}
	return nil
}

// runOpenSteps runs the steps of a round, except those that an earlier owner has finished. It returns the results
// of all steps of the round in order.
func (t *Turn) runOpenSteps(work, ctx context.Context) ([]execution.Result, error) {
	tasks := t.cursor.Round()
	var open []cursor.Task
	for i, recovered := range cursor.PriorResults(tasks, t.recoveredResults(), t.lastReachedStep()) {
		task := tasks[i]
		if recovered == nil {
			open = append(open, task)
			continue
		}
		if t.events.PriorEvents().NeedsEndEvent(task.Number) {
			if err := errors.Join(t.events.WriteDecision(ctx, task, t.decisionTime), t.events.PriorEvents().WriteRecoveredStep(ctx, *recovered)); err != nil {
				return nil, err
			}
		}
		t.conversation.AddResult(task, *recovered, t.begun.Turn.Number)
	}
	for _, task := range open {
		if err := t.events.WriteDecision(ctx, task, t.decisionTime); err != nil {
			return nil, err
		}
	}
	if err := t.events.AwaitChoices(work); err != nil {
		return nil, err
	}
	results, err := t.steps.Run(work, ctx, t.cursor, open, t.conversation)
	if err != nil {
		return nil, err
	}
	for i, task := range open {
		t.conversation.AddResult(task, results[i], t.begun.Turn.Number)
	}
	slices.SortFunc(t.conversation.Results, func(a, b execution.Result) int { return cmp.Compare(a.Step, b.Step) })
	return t.conversation.Results[len(t.conversation.Results)-len(tasks):], nil
}

// recoveredResults returns the results of steps that need not run. These steps were committed, failed or wait since
// an earlier owner, or are inherited.
func (t *Turn) recoveredResults() []execution.Result {
	return append(slices.Clone(t.begun.Turn.Steps), t.events.PriorEvents().UncommittedResults()...)
}

// lastReachedStep returns the last step that an earlier turn is known to have begun (0 when this turn continues no
// earlier one).
func (t *Turn) lastReachedStep() int {
	last := 0
	for _, answer := range t.begun.Turn.Answers {
		last = max(last, answer.Step())
	}
	for number := range t.begun.Rerun {
		last = max(last, number)
	}
	return last
}

// newSelector returns a selector that asks the routing authority. It repeats a choice that an earlier owner
// published or that the turn inherits, because steps may already have run according to it.
func (t *Turn) newSelector(ctx context.Context) cursor.Selector {
	flow := t.begun.Flow
	return func(number, next int, s workflow.Step) (routing.Decision, error) {
		if choice := cmp.Or(t.events.Choice(number), t.begun.Request.InheritedChoice(number)); choice != nil {
			return routing.DecisionFromRecord(flow, s, choice)
		}
		began := time.Now()
		req := assignment.NewRoutingRequest(t.begun.Request, t.begun.Turn.Trace, s)
		d, failed := t.driver.Dispatcher.Authority().ChooseAgent(flow, s, req, t.driver.Dispatcher.AgentCandidate)
		choice := routing.RecordChoice(d, number, time.Since(began))
		if flow.Steps[d.Target].Agent != "" {
			choice.Number = int32(next)
		}
		if err := t.events.WriteChoice(ctx, choice); err != nil {
			return routing.Decision{}, err
		}
		if failed != nil {
			return routing.Decision{}, failed
		}
		t.events.RecordChoice(number, choice)
		return routing.DecisionFromRecord(flow, s, choice)
	}
}
