// Package loop is what an agent does inside one step: it asks the model, runs the tools that the model asked for, and
// asks again, until the model answers without a tool.
//
// It keeps no state and knows no sessions: messages come in, events go out (LP-1). Handlers of package hook run at their
// events, and cannot bring the conversation into an order that a model rejects (C-11). With a journal it continues where
// an earlier attempt was lost, and repeats nothing that it finds there (guarantees 2.8).
//
// The way of one step, and the package of each phase:
//
//	modelcall          asks the model, or takes its reply from the journal
//	toolround          runs the tools of a reply, one after the other or concurrently, each in these phases:
//	  prepare          handlers, guard, answers, credentials: does the call run, wait, or have its result?
//	  execute          takes the result from the journal, or runs the tool
//	  finish           journal, event, message to the model, handlers
//
// A toolcall.Call passes through the phases of a round. The packages journal, stop, budgetcheck and guard each hold one
// rule that all phases obey.
package loop

import (
	"context"
	"iter"

	"github.com/troupe-dev/troupe/internal/loop/modelcall"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Limits of a Loop that sets none.
const (
	DefaultMaxIterations = 10
	DefaultMaxFailures   = 3 // LP-33
)

// ReasonMaxIterations is the reason of the warning that a turn stopped at its limit.
const ReasonMaxIterations = "MAX_ITERATIONS"

// Loop holds the settings that do not change between runs. It may run many times at once.
type Loop struct {
	Model         llm.Model
	Tools         *tool.Set // nil when there are none
	MaxIterations int       // 0 means DefaultMaxIterations
	MaxFailures   int       // of tools in a row (0 means DefaultMaxFailures)
	// Parallel runs the tools of a round concurrently. Their handlers still run one at a time, and their results come
	// in the order of the calls (C-9).
	Parallel bool
	// Guard says what happens to tools after untrusted words were read (S14) (empty means tool.GuardAsk).
	Guard tool.Guard
}

// Input holds the input of one run.
type Input struct {
	System  string
	Turn    *hook.Control // of the turn, with its messages and handlers (nil makes a new one)
	Choices []string      // if any, the model decides between them and gets no tools
	// Only lists the tools that the run may use, in the order in which the model gets them (nil allows all). A call of
	// another tool does not run: its message says so, with policy_allowlist.
	Only *execution.Tools

	Journal   execution.Journal       // of the step (nil keeps nothing)
	Key       func(number int) string // idempotency key of the tool call of a number (nil for none)
	KeepReply bool                    // the step continues after the run, so the journal gets its final reply too
	SideCalls bool                    // the journal has all model calls of the run as side calls
	// Recorded makes the journal keep what only a replay needs: the final reply, the arguments of tools, and digests of
	// what models are asked. A run with a stepjournal.Sealed is a replay: it calls no model and no tool, except agents
	// that are tools, whose calls the journal has.
	Recorded bool

	ID      func(number int) string // id of the tool call of a number, if it waits (nil means pendingcall.ID)
	Agent   string                  // of the step; an answer to a call that waits goes to it
	Answers []execution.Answer      // to calls that waited in an earlier turn, whose journal this run has

	Broker execution.CredentialBroker // asks for credentials that tools lack (nil fails such a tool)
	Budget *budget.Ledger             // asked before each call of a model or a tool (nil bounds nothing)

	// Stop asks the run to stop when it ends (nil when the caller never does). The reply that the model is giving is
	// dropped, a running tool is interrupted, and the run ends with the reason Stopped (CO-63).
	Stop context.Context //nolint:containedctx // a second signal besides the context that ends the run
}

// Run continues until the model answers without asking for a tool, a tool asks the user or waits for external input, the
// run is stopped, or the iterations are used up. All these are answers, not errors (CO-22 to CO-26, LP-14 to LP-16). The
// last event is an event.Answer then.
//
// In a tool round the assistant message with all calls comes first. Then the tools run one at a time in the order of the
// calls, and each call gets exactly one tool message (CO-29, CO-31, CO-33). A tool that fails, panics or does not exist
// gets a message that says so, and the run continues (CO-35). After MaxFailures in a row it ends with resource_tool
// (LP-33). Failures of earlier attempts do not count.
//
// An error comes last, without an Answer. Errors of models and handlers keep their mode. When ctx ends, the mode is
// agent_timeout or user_cancelled. A consumer that stops reading ends the run at once (AD-10).
//
// A call that needs external input ends the run with the reason InputRequired and all calls that wait (LP-16, AD-32,
// LP-37): a handler makes it wait, a client runs it (tool.Client), or it lacks a credential. It has not run, the journal
// does not have it, and no later handler runs. In order, the calls after it are not looked at. With Parallel they run
// and end, and their handlers come later. What was done is durable then. The run that continues gets the Answers and the
// same journal, and arrives at the same point. Calls without an answer wait again. When a tool of the round asks the
// user, the calls that wait come first, and its question once they have their answers.
//
// The Budget is asked before each call of a model or a tool that the journal does not have. When it refuses, the run ends
// with policy_budget, and neither the call nor another one of its round is made. No handler can continue from there
// (OC-29).
//
// Model calls and tool calls are numbered from 1 in the order in which they begin. The run does not make a call again
// that the journal has as done. It emits the text of such a reply again, and nothing of such a tool. An error of the
// journal ends the run. Its mode nondeterminism means that this run does something else than the one that was lost.
func (l Loop) Run(ctx context.Context, in Input) iter.Seq2[event.Event, error] {
	return l.drive(in, in.Journal != nil, func(r *run) error { return r.all(ctx) })
}

// Call runs tools that no model asked for, as one round with its handlers: a tool outside of a turn (CO-38). There is no
// Answer; everything else is as in Run.
func (l Loop) Call(ctx context.Context, in Input, calls ...conversation.ToolCall) iter.Seq2[event.Event, error] {
	return l.drive(in, false, func(r *run) error {
		calls := new(modelcall.CallIDs).Assign(calls, r.turn.Messages())
		if err := r.addReply("", calls); err != nil {
			return err
		}
		_, err := r.tools.Run(ctx, calls)
		return err
	})
}
