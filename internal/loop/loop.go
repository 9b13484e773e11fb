// Package loop is what an agent does inside one step: it asks the model, runs the tools
// that the model asked for, and asks again, until the model answers without a tool.
//
// It is stateless and knows nothing of sessions: messages come in, events go out (LP-1).
// Handlers of package hook are run at their events, and cannot bring the conversation into
// an order that a model does not take (C-11). With a journal it goes on where an attempt
// before it was lost, and runs nothing twice that it finds there (guarantees 2.8).
package loop

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"go.opentelemetry.io/otel/attribute"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/spans"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Limits of a Loop that names none.
const (
	DefaultMaxIterations = 10
	DefaultMaxFailures   = 3 // LP-33
)

// MaxToolText is how much of a tool's result a model gets to read, in bytes.
const MaxToolText = 256 << 10

// ReasonMaxIterations is that of the warning that a turn stopped at its limit.
const ReasonMaxIterations = "MAX_ITERATIONS"

// Loop is what does not change between runs. It may run many times at once.
type Loop struct {
	Model         llm.Model
	Tools         *tool.Set // nil: none
	MaxIterations int       // 0: DefaultMaxIterations
	MaxFailures   int       // of tools in a row; 0: DefaultMaxFailures
	// Parallel runs the tools of a round beside each other. Their handlers still run one at a
	// time, and their results come in the order of the calls (C-9).
	Parallel bool
	// Guard is what becomes of tools that a turn may lose; empty: tool.GuardAsk (S14).
	Guard tool.Guard
}

// Input is what one run is given.
type Input struct {
	System  string
	Turn    *hook.Control // of the turn: its messages, its handlers; nil: a new one
	Choices []string      // if any, the model decides between them and gets no tools
	// Only are the tools that the run may use, and that the model is offered, in this order; nil:
	// all. A call for another one is not run: its message says so, with policy_allowlist.
	Only *execution.Tools

	Journal execution.Journal       // of the step; nil: nothing is kept
	Key     func(number int) string // idempotency key of the tool call of a number; nil: none
	Keep    bool                    // the step goes on behind the run: the journal gets its answer too
	Apart   bool                    // the journal takes all of the run as said beside the conversation
	// Recorded has the journal get what only a replay needs: the reply that ends the run, the
	// arguments of tools, and what models are asked. A journal that is stepjournal.Sealed is replayed:
	// no model and no tool is called, but for agents that are tools, whose calls it has.
	Recorded bool

	ID      func(number int) string // of the tool call of a number, if it waits; nil: pendingcall.ID of the turn's step
	Agent   string                  // of the step, to which an answer goes; a call that waits names it
	Answers []execution.Answer      // to calls that wait since a turn before this one; the journal has what was done in it

	Broker execution.CredentialBroker // asks for credentials that tools lack; nil: such a tool fails
	Budget *budget.Ledger             // that the run asks before each call of a model or a tool; nil: nothing is bounded

	// Stop, when it ends, asks the run to stop: what a model says at that moment is dropped,
	// a tool that runs is interrupted, and the run ends with the reason Stopped (CO-63). Nil:
	// nobody asks.
	Stop context.Context //nolint:containedctx // a signal beside the one that ends the run
}

// Run goes on until the model answers without asking for a tool, a tool asks the user or waits
// for somebody, the run is stopped, or the iterations are used up; all these are answers, not
// errors (CO-22 to CO-26, LP-14 to LP-16). The last event is an event.Answer then.
//
// In a tool round the assistant message with all calls comes first; then the tools run one
// at a time in the order of the calls, and each call gets exactly one tool message (CO-29,
// CO-31, CO-33). A tool that fails, panics or does not exist makes a message that says so,
// and the run goes on (CO-35), until MaxFailures in a row end it with resource_tool (LP-33). Those of an
// attempt before this one do not count: a retry has its own.
//
// An error comes last, and there is no Answer then. That of a model or a handler keeps its
// mode. When ctx ends, it is agent_timeout or user_cancelled. A consumer that stops reading
// ends the run at once (AD-10).
//
// A call that waits for somebody outside of the turn ends the run with the reason InputRequired
// and all calls that wait (LP-16, AD-32, LP-37): one that a handler lets wait, one of a
// tool.Client, or one that lacks a credential.
// It has not run, the journal has nothing of it, and no handler behind this point runs. In
// order, the calls behind it are not looked at either; with Parallel they run and end, and their
// handlers come later. What was done is durable then. The run that goes on gets the Answers and
// the same journal, and comes to the same point: calls without an answer wait again. When a tool
// of the round asks the user, the calls that wait come first, and its question once they have
// their answers.
//
// Before each call of a model or a tool that the journal does not know the Budget is asked. When
// it refuses, the run ends with policy_budget and the call is not made, nor any other of its
// round; no handler can go on from there (OC-29).
//
// Model calls and tool calls are numbered from 1 in the order in which they begin. A number
// that the journal knows as done is not done again; of a model's reply the text is emitted
// again, of a tool nothing. An error of the journal ends the run; nondeterminism means that
// this run asks for something else than the one that was lost.
func (l Loop) Run(ctx context.Context, in Input) iter.Seq2[event.Event, error] {
	return l.drive(in, func(r *run) error { return r.all(ctx) })
}

// Call runs the tools of a reply that nobody's model made, as one round with its handlers: a
// tool outside of a turn (CO-38). There is no Answer; all else is as with Run.
func (l Loop) Call(ctx context.Context, in Input, calls ...conversation.ToolCall) iter.Seq2[event.Event, error] {
	return l.drive(in, func(r *run) error { return r.round(ctx, &hook.LLMReply{Turn: r.turn, ToolCalls: r.named(calls)}) })
}

// drive makes a run and yields its events, and then its error.
func (l Loop) drive(in Input, work func(*run) error) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if in.Turn == nil {
			in.Turn = hook.New(hook.Start{})
		}
		r := &run{Control: in.Turn, loop: l, in: in, turn: in.Turn.Turn(), tools: l.Tools.Only(in.Only), ids: map[string]bool{}}
		before := r.Events.Listen(func(e event.Event) error {
			if !yield(e, nil) {
				return errDeaf
			}
			return nil
		})
		defer func() { r.Events.Listen(before) }()
		err := work(r)
		r.unstoppable = true // such as a handler of AfterAgent that asks the model
		if err != nil && !errors.Is(err, errDeaf) {
			yield(event.Event{}, err)
		}
	}
}

// errDeaf says that nobody reads events any more.
var errDeaf = errors.New("nobody listens")

// errStop is why the context of a model or a tool ends when the run is to stop.
var errStop = errors.New("the turn is to stop")

// run is one run under way.
type run struct {
	*hook.Control
	loop     Loop
	in       Input
	turn     *hook.Turn
	tools    *tool.Set       // that it may use
	number   int             // of the last model call or tool call
	failures int             // of tools, in a row
	question string          // of a tool to the user
	ids      map[string]bool // of the tool calls so far
	waiting  []execution.Pending

	patient     bool             // calls may wait: there is a journal, and a turn
	unstoppable bool             // the stop was honoured, or comes too late: nothing is cut off any more
	quiet       bool             // what the model says is told when its handlers have seen it
	owed        *execution.Entry // of the journal: a reply that is only written if something follows it
}

// all is the run from its first event to its answer.
func (r *run) all(ctx context.Context) error {
	r.patient = r.in.Journal != nil
	r.SetAsk(func(ctx context.Context, req llm.Request) (conversation.Message, error) { return r.aside(ctx, req) })
	if err := late(r.Handlers.AfterUserInput(ctx)); err != nil {
		return err
	}
	if r.Progress.Ended() {
		return r.answer(ctx, r.over())
	}
	limit := cmp.Or(r.loop.MaxIterations, DefaultMaxIterations)
	for r.turn.Iteration() < limit {
		below, span := spans.Start(ctx, "iteration", attribute.Int("troupe.iteration", r.turn.Iteration()+1))
		answer, err := r.iteration(below)
		span(err)
		if err != nil {
			return err
		}
		if answer != nil {
			return r.answer(ctx, answer)
		}
	}
	if r.stopping() {
		return r.answer(ctx, r.stopped())
	}
	return r.exhausted(limit)
}

// iteration is one model call with its tool round. It returns the answer of the run once
// there is one.
func (r *run) iteration(ctx context.Context) (*event.Answer, error) {
	if r.stopping() {
		return r.stopped(), nil
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	r.Progress.NextIteration()
	if err := late(r.Handlers.BeforeIteration(ctx)); err != nil || r.Progress.Ended() {
		return r.over(), err
	}
	reply, err := r.ask(ctx)
	if errors.Is(err, errStop) {
		return r.stopped(), late(r.Handlers.AfterIteration(ctx))
	}
	if err != nil || r.Progress.Ended() {
		return r.over(), err
	}
	if len(reply.ToolCalls) == 0 {
		if err := r.say(reply); err != nil {
			return nil, err
		}
		r.Conversation.CloseRound()
		return &event.Answer{Text: reply.Text, Reason: event.Natural}, late(r.Handlers.AfterIteration(ctx))
	}
	if err := r.round(ctx, reply); err != nil {
		return nil, err
	}
	if len(r.waiting) > 0 {
		return &event.Answer{Text: pendingcall.Summary(r.waiting), Reason: event.InputRequired, Pending: r.waiting}, nil
	}
	if err := late(r.Handlers.AfterIteration(ctx)); err != nil || r.Progress.Ended() {
		return r.over(), err
	}
	if r.question != "" {
		return &event.Answer{Text: r.question, Reason: event.InputRequired}, nil
	}
	return nil, nil
}

// answer ends the run.
func (r *run) answer(ctx context.Context, a *event.Answer) error {
	if err := r.in.Budget.Refusal(); err != nil { // a handler went on from it
		return err
	}
	if a.Reason == event.Stopped {
		r.unstoppable = true
		if err := r.Handlers.OnStopSignal(ctx); err != nil {
			return err
		}
	}
	a.Iterations = r.turn.Iteration()
	return r.Events.Emit(*a)
}

// id is what somebody calls a tool call by who answers it.
func (r *run) id(number int) string {
	if r.in.ID != nil {
		return r.in.ID(number)
	}
	return pendingcall.ID(r.turn.Info().Turn, r.turn.Info().Step, number)
}

// say puts what the model said into the conversation.
func (r *run) say(reply *hook.LLMReply) error {
	r.Conversation.Append(conversation.Message{
		Role: conversation.RoleAssistant, Author: r.turn.Info().Agent, Text: reply.Text, ToolCalls: reply.ToolCalls, Untrusted: r.turn.Untrusted(),
	})
	return r.EmitLast()
}

// over is the answer of a turn that a handler ended: what was said last.
func (r *run) over() *event.Answer {
	if !r.Progress.Ended() {
		return nil
	}
	return &event.Answer{Text: r.lastWords(), Reason: event.Stopped}
}
