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
	control, turn, allowed := in.Turn, in.Turn.Turn(), l.Tools.Only(in.Only)
	log, signal := journal.New(in.Journal, in.SideCalls), stop.New(in.Stop, control.Progress)
	if in.ID == nil {
		in.ID = func(number int) string { return pendingcall.ID(turn.Info().Turn, turn.Info().Step, number) }
	}
	return &run{
		Control: control, turn: turn, stop: signal, budget: in.Budget,
		maxIterations: cmp.Or(l.MaxIterations, DefaultMaxIterations),
		model: &modelcall.Caller{
			Model: l.Model, Tools: allowed, System: in.System, Choices: in.Choices,
			Control: control, Log: log, Budget: in.Budget, Stop: signal, Recorded: in.Recorded, KeepReply: in.KeepReply,
		},
		tools: &toolround.Runner{
			Control: control, Log: log, Stop: signal, Budget: in.Budget,
			Prepare: &prepare.Preparer{
				Control: control, Log: log, Stop: signal, Tools: allowed, Guard: l.Guard,
				CanWait: canWait, Agent: in.Agent, Answers: in.Answers, Broker: in.Broker, Key: in.Key, ID: in.ID, Recorded: in.Recorded,
			},
			Execute:    &execute.Executor{Control: control, Log: log, Stop: signal, Budget: in.Budget, Allowed: allowed, AllTools: l.Tools},
			Finish:     &finish.Finisher{Control: control, Log: log, Guard: l.Guard},
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
func (l Loop) drive(in Input, canWait bool, work func(*run) error) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if in.Turn == nil {
			in.Turn = hook.New(hook.Start{})
		}
		r := l.newRun(in, canWait)
		before := r.Events.Listen(func(e event.Event) error {
			if !yield(e, nil) {
				return stop.ErrConsumerGone
			}
			return nil
		})
		defer func() { r.Events.Listen(before) }()
		err := work(r)
		r.stop.Disable() // a handler of AfterAgent may still ask the model
		if err != nil && !errors.Is(err, stop.ErrConsumerGone) {
			yield(event.Event{}, err)
		}
	}
}

// runTurn runs the loop from the user's input to the answer.
func (r *run) all(ctx context.Context) error {
	r.SetAsk(r.model.SideCall)
	if err := stop.WithoutStop(r.Handlers.AfterUserInput(ctx)); err != nil {
		return err
	}
	if r.Progress.Ended() {
		return r.answer(ctx, r.endedAnswer())
	}
	for r.turn.Iteration() < r.maxIterations {
		spanCtx, span := spans.Start(ctx, "iteration", attribute.Int("troupe.iteration", r.turn.Iteration()+1))
		answer, err := r.iteration(spanCtx)
		span(err)
		if err != nil {
			return err
		}
		if answer != nil {
			return r.answer(ctx, answer)
		}
	}
	if r.stop.Requested() {
		return r.answer(ctx, r.stoppedAnswer())
	}
	return r.answerIncomplete()
}

// runIteration makes one model call and runs its tool round. It returns the answer if the run is complete, and
// otherwise nil.
func (r *run) iteration(ctx context.Context) (*event.Answer, error) {
	if r.stop.Requested() {
		return r.stoppedAnswer(), nil
	}
	if ctx.Err() != nil {
		return nil, stop.ContextError(ctx)
	}
	r.Progress.NextIteration()
	if err := stop.WithoutStop(r.Handlers.BeforeIteration(ctx)); err != nil || r.Progress.Ended() {
		return r.endedAnswer(), err
	}
	reply, err := r.model.Ask(ctx)
	if errors.Is(err, stop.ErrStopped) {
		return r.stoppedAnswer(), stop.WithoutStop(r.Handlers.AfterIteration(ctx))
	}
	if err != nil || r.Progress.Ended() {
		return r.endedAnswer(), err
	}
	if err := r.addReply(reply.Text, reply.ToolCalls); err != nil {
		return nil, err
	}
	if len(reply.ToolCalls) == 0 {
		r.Conversation.CloseRound()
		return &event.Answer{Text: reply.Text, Reason: event.Natural}, stop.WithoutStop(r.Handlers.AfterIteration(ctx))
	}
	return r.toolRound(ctx, reply.ToolCalls)
}

// runToolRound runs the tools that the model called. It returns an answer if they end the run, and otherwise nil.
func (r *run) toolRound(ctx context.Context, calls []conversation.ToolCall) (*event.Answer, error) {
	outcome, err := r.tools.Run(ctx, calls)
	if err != nil {
		return nil, err
	}
	if len(outcome.Pending) > 0 {
		return &event.Answer{Text: pendingcall.Summary(outcome.Pending), Reason: event.InputRequired, Pending: outcome.Pending}, nil
	}
	if err := stop.WithoutStop(r.Handlers.AfterIteration(ctx)); err != nil || r.Progress.Ended() {
		return r.endedAnswer(), err
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
