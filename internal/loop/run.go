package loop

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe/internal/loop/execute"
	"github.com/troupe-dev/troupe/internal/loop/finish"
	"github.com/troupe-dev/troupe/internal/loop/journal"
	"github.com/troupe-dev/troupe/internal/loop/modelcall"
	"github.com/troupe-dev/troupe/internal/loop/prepare"
	"github.com/troupe-dev/troupe/internal/loop/stop"
	"github.com/troupe-dev/troupe/internal/loop/toolround"
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/spans"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// run is one run under way.
type run struct {
	*hook.Control
	turn          *hook.Turn
	stop          *stop.Signal
	model         *modelcall.Caller
	tools         *toolround.Runner
	budget        *budget.Ledger
	maxIterations int
}

// newRun connects the phases of a run. With canWait, its calls may wait for external input.
func (l Loop) newRun(in Input, canWait bool) *run {
	control, turn, allowed := in.Control, in.Control.Turn(), l.Tools.Only(in.AllowedTools)
	log, signal := journal.New(in.Journal, in.RecordAllSideCalls), stop.New(in.Stop, control.Progress)
	if in.CallID == nil {
		in.CallID = func(number int) string { return pendingcall.ID(turn.Info().Turn, turn.Info().Step, number) }
	}
	return &run{
		Control: control, turn: turn, stop: signal, budget: in.Budget,
		maxIterations: cmp.Or(l.MaxIterations, DefaultMaxIterations),
		model: &modelcall.Caller{
			Model: l.Model, Tools: allowed, System: in.System, Choices: in.Choices,
			Control: control, Log: log, Budget: in.Budget, Stop: signal, RecordForReplay: in.RecordForReplay, RecordFinalReply: in.RecordFinalReply,
		},
		tools: &toolround.Runner{
			Control: control, Log: log, Stop: signal, Budget: in.Budget,
			Preparer: &prepare.Preparer{
				Control: control, Log: log, Stop: signal, Tools: allowed, Guard: l.Guard,
				CanWait: canWait, Agent: in.Agent, Answers: in.Answers, Broker: in.Broker,
				IdempotencyKey: in.IdempotencyKey, CallID: in.CallID, RecordForReplay: in.RecordForReplay,
			},
			Executor:   &execute.Executor{Control: control, Log: log, Stop: signal, Budget: in.Budget, AllowedTools: allowed, AllTools: l.Tools},
			Finisher:   &finish.Finisher{Control: control, Log: log, Guard: l.Guard},
			Concurrent: l.Parallel, MaxFailures: l.maxFailures(),
		},
	}
}

func (l Loop) maxFailures() int {
	if l.MaxFailures > 0 {
		return l.MaxFailures
	}
	return DefaultMaxFailures
}

// streamRun executes work as a run. It yields the events of the run, and finally its error.
func (l Loop) streamRun(in Input, canWait bool, work func(*run) error) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if in.Control == nil {
			in.Control = hook.New(hook.Start{})
		}
		r := l.newRun(in, canWait)
		before := r.Events.SetConsumer(func(e event.Event) error {
			if !yield(e, nil) {
				return stop.ErrConsumerGone
			}
			return nil
		})
		defer func() { r.Events.SetConsumer(before) }()
		err := work(r)
		r.stop.IgnoreCaller() // a handler of AfterAgent may still ask the model
		if err != nil && !errors.Is(err, stop.ErrConsumerGone) {
			yield(event.Event{}, err)
		}
	}
}

// runTurn runs the loop from the user's input to the answer.
func (r *run) runTurn(ctx context.Context) error {
	r.SetAsk(r.model.SideCall)
	if err := stop.IgnoreErrStopped(r.Handlers.AfterUserInput(ctx)); err != nil {
		return err
	}
	if r.Progress.Ended() {
		return r.endWithAnswer(ctx, r.handlerEndAnswer())
	}
	for r.turn.Iteration() < r.maxIterations {
		spanCtx, span := spans.Start(ctx, "iteration", attribute.Int("troupe.iteration", r.turn.Iteration()+1))
		answer, err := r.runIteration(spanCtx)
		span(err)
		if err != nil {
			return err
		}
		if answer != nil {
			return r.endWithAnswer(ctx, answer)
		}
	}
	if r.stop.IsRequested() {
		return r.endWithAnswer(ctx, r.stopAnswer())
	}
	return r.endAtLimit()
}

// runIteration makes one model call and runs its tool round. It returns the answer if the run is complete, and
// otherwise nil.
func (r *run) runIteration(ctx context.Context) (*event.Answer, error) {
	if r.stop.IsRequested() {
		return r.stopAnswer(), nil
	}
	if ctx.Err() != nil {
		return nil, stop.NewContextError(ctx)
	}
	r.Progress.NextIteration()
	if err := stop.IgnoreErrStopped(r.Handlers.BeforeIteration(ctx)); err != nil || r.Progress.Ended() {
		return r.handlerEndAnswer(), err
	}
	reply, err := r.model.Ask(ctx)
	if errors.Is(err, stop.ErrStopped) {
		return r.stopAnswer(), stop.IgnoreErrStopped(r.Handlers.AfterIteration(ctx))
	}
	if err != nil || r.Progress.Ended() {
		return r.handlerEndAnswer(), err
	}
	if err := r.addReply(reply.Text, reply.ToolCalls); err != nil {
		return nil, err
	}
	if len(reply.ToolCalls) == 0 {
		r.Conversation.CloseRound()
		return &event.Answer{Text: reply.Text, Reason: event.Natural, Incomplete: reply.Incomplete}, stop.IgnoreErrStopped(r.Handlers.AfterIteration(ctx))
	}
	return r.runToolRound(ctx, reply.ToolCalls)
}

// runToolRound runs the tools that the model called. It returns an answer if they end the run, and otherwise nil.
func (r *run) runToolRound(ctx context.Context, calls []conversation.ToolCall) (*event.Answer, error) {
	outcome, err := r.tools.Run(ctx, calls)
	if err != nil {
		return nil, err
	}
	if len(outcome.Pending) > 0 {
		return &event.Answer{Text: pendingcall.Summary(outcome.Pending), Reason: event.InputRequired, Pending: outcome.Pending}, nil
	}
	if err := stop.IgnoreErrStopped(r.Handlers.AfterIteration(ctx)); err != nil || r.Progress.Ended() {
		return r.handlerEndAnswer(), err
	}
	if outcome.Question != "" {
		return &event.Answer{Text: outcome.Question, Reason: event.InputRequired}, nil
	}
	return nil, nil
}

// addReply adds the model's reply to the conversation.
func (r *run) addReply(text string, calls []conversation.ToolCall) error {
	r.Conversation.Append(conversation.Message{
		Role: conversation.RoleAssistant, Author: r.turn.Info().Agent, Text: text, ToolCalls: calls, Untrusted: r.turn.Untrusted(),
	})
	return r.EmitLast()
}
