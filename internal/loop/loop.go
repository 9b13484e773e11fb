// Package loop runs an agent inside one step. It asks the model, runs the tools that the model calls, and asks
// again, until the model answers without a tool call.
//
// The package keeps no state and knows no sessions. It takes messages and yields events (LP-1). Handlers of package
// hook run at their events and cannot produce a conversation that a model rejects (C-11). With a journal, a run
// continues a lost attempt and repeats nothing that the journal contains (guarantees, section 2.8).
//
// A step has these phases, each in its own package:
//
//	modelcall          asks the model, or takes its reply from the journal
//	toolround          runs the tools of a reply, one after the other or concurrently, each in these phases:
//	  prepare          handlers, guard, answers, credentials: does the call run, wait, or have its result?
//	  execute          takes the result from the journal, or runs the tool
//	  finish           journal, event, message to the model, handlers
//
// A toolcall.Call passes through the phases of a round. The packages journal, stop, budgetcheck and guard each
// implement one rule that all phases follow.
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

// These limits apply to a Loop that sets none.
const (
	DefaultMaxIterations = 10
	DefaultMaxFailures   = 3 // LP-33
)

// ReasonMaxIterations is the warning reason for a turn that ended at its limit of iterations.
const ReasonMaxIterations = "MAX_ITERATIONS"

// Loop holds the settings of runs. It does not change, and many runs may use it concurrently.
type Loop struct {
	Model         llm.Model
	Tools         *tool.Set // nil for none
	MaxIterations int       // 0 means DefaultMaxIterations
	MaxFailures   int       // tool failures in a row that end a run (0 means DefaultMaxFailures)
	// Parallel makes the tools of a round run concurrently. Their handlers still run one at a time, and their
	// results keep the order of the calls (C-9).
	Parallel bool
	// Guard determines which tools need an approval after the turn has read untrusted text (guarantee S14) (empty means
	// tool.GuardAsk).
	Guard tool.Guard
}

// Input holds the input of one run.
type Input struct {
	System  string
	Control *hook.Control // control of the turn, with its messages and handlers (nil creates a new turn)
	Choices []string      // choices for the model, which then gets no tools (empty for none)
	// AllowedTools lists the tools that the run may use, in the order in which the model gets them (nil allows
	// all). A call of any other tool does not run, and its result is an error of mode policy_allowlist.
	AllowedTools *execution.Tools

	Journal            execution.Journal       // journal of the step (nil records nothing)
	IdempotencyKey     func(number int) string // idempotency key for the tool call with this number (nil for none)
	RecordFinalReply   bool                    // record the final reply too, because the step continues after the run
	RecordAllSideCalls bool                    // record all model calls of the run as side calls
	// RecordForReplay makes the journal also record what only a replay needs: the final reply, the arguments of
	// tools, and digests of model requests. A run whose Journal is a stepjournal.SealedJournal is a replay. It calls no
	// model and no tool, except agents used as tools, whose inner calls are in the journal.
	RecordForReplay bool

	CallID  func(number int) string // id of the waiting tool call with this number (nil means pendingcall.ID)
	Agent   string                  // agent of the step, which receives answers to waiting calls
	Answers []execution.Answer      // answers to calls that waited in an earlier turn with the same journal

	Broker execution.CredentialBroker // requests credentials that tools lack (nil fails such a tool)
	Budget *budget.Ledger             // checked before each model call and tool call (nil for no limit)

	// Stop makes the run stop when this context ends (nil for never). The run then drops the reply in progress,
	// interrupts running tools, and ends with the reason Stopped (CO-63).
	Stop context.Context //nolint:containedctx // a second signal besides the context that ends the run
}

// Run alternates between model calls and tool rounds. It ends when the model answers without a tool, a tool asks
// the user, a call waits for external input, the run is stopped, or the iterations are used up. All of these are
// answers and not errors, and the last event is an event.Answer (CO-22 to CO-26, LP-14 to LP-16).
//
// A tool round begins with the assistant message that contains all calls. The tools run one at a time in the order
// of the calls, and each call gets exactly one tool message (CO-29, CO-31, CO-33). If a tool fails, panics or does
// not exist, its message says so and the run continues (CO-35). After MaxFailures failures in a row, the run ends
// with resource_tool (LP-33). Failures in earlier attempts are not counted.
//
// If the run fails, the error comes last and there is no Answer. Errors of models and handlers keep their mode. If
// ctx ends, the mode is agent_timeout or user_cancelled. If the consumer stops reading, the run ends at once
// (AD-10).
//
// A call may need external input: a handler makes it wait, a client runs it (tool.Client), or it lacks a
// credential. Such a call ends the run with the reason InputRequired and a list of all waiting calls (LP-16,
// AD-32, LP-37). It has not run, is not in the journal, and its later handlers have not run. Without Parallel, the
// calls after it are not started. With Parallel they run to their end, and only their handlers are deferred. All
// completed work is durable before the run ends. The continuing run gets the Answers and the same journal, and
// reaches the same point. Calls that have no answer wait again. If a tool of the round asks the user a question,
// the question follows when no call waits any longer.
//
// The Budget is checked before each model call or tool call that is not in the journal. If it is exceeded, the run
// ends with policy_budget, and neither the call nor any other call of its round is made. No handler can continue
// such a run (OC-29).
//
// Model calls and tool calls are numbered from 1 in the order in which they begin. A call that the journal records
// as done is not made again. The text of a recorded reply is emitted again, but not the events of a recorded tool
// call. An error of the journal ends the run. The mode nondeterminism means that this run differs from the lost
// one.
func (l Loop) Run(ctx context.Context, in Input) iter.Seq2[event.Event, error] {
	return l.streamRun(in, in.Journal != nil, func(r *run) error { return r.runTurn(ctx) })
}

// RunTools runs the given tool calls as one round with its handlers. Only these may ask the model (CO-38). It yields no
// Answer. Otherwise it behaves as Run does.
func (l Loop) RunTools(ctx context.Context, in Input, calls ...conversation.ToolCall) iter.Seq2[event.Event, error] {
	return l.streamRun(in, false, func(r *run) error {
		if l.Model != nil {
			r.SetAsk(r.model.SideCall) // a handler of the round may ask it
		}
		calls := new(modelcall.CallIDs).Assign(calls, r.turn.Messages())
		if err := r.addReply("", calls); err != nil {
			return err
		}
		_, err := r.tools.Run(ctx, calls)
		return err
	})
}
