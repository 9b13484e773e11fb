// Package execution defines the input and the result of one execution of an agent in a turn. Its values must not
// change after they have been passed to another package.
package execution

import (
	"cmp"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Step is the complete input of one execution of an agent. The agent keeps nothing of it afterwards (RA-1).
//
// It has more fields than other structs because it is the Go form of ExecuteStepRequest. No code computes with all
// of them.
type Step struct {
	TraceID      string // the same in all steps of the turn
	RootTraceID  string // the trace with which the run began (empty means TraceID)
	SessionID    string
	User         string // owner of the session (empty means none)
	TurnID       string
	Turn         int    // number of the turn in the session, from 1
	Number       int    // number of the step in the turn, from 1
	Attempt      int    // from 1
	Agent        string // name of the agent that runs the step
	OriginTurnID string // id of the failed turn that ran the step first and that this turn resumes (empty means TurnID)

	History    []conversation.Message // the window that the agent may see, oldest message first
	Rounds     []conversation.Rounds  // the agent's own tool rounds of earlier steps, by turn and step (LP-45)
	Prior      []Result               // results of the earlier steps of the turn
	Answers    []Answer               // answers to calls of an earlier turn, which this turn continues
	Assignment                        // what the step must do

	Routes []string // agents to which the step may ask to hand over
	Silent bool     // the output is for later steps and not for the session; the step may not end the turn
	Tools  *Tools   // the tools of the agent that the step may use (nil means all)

	Context  Context          // context of the run (zero means that the agent derives one from the fields above)
	Journal  Journal          // journal of the step (nil means that nothing is recorded)
	Recorded bool             // the journal records everything that is needed to run the step again
	Broker   CredentialBroker // asks a person for missing credentials (nil means that no person can be asked)
	Budget   *budget.Ledger   // budget of this attempt, shared by all agents of the step (nil means unlimited)
}

// CallTurn returns the id of the turn from which idempotency keys are derived. A turn that resumes a failed turn
// uses the id of the failed turn, so that tools recognize repeated calls.
func (s Step) CallTurn() string { return cmp.Or(s.OriginTurnID, s.TurnID) }

// Observations returns the observations of the earlier steps, in order.
func (s Step) Observations() []string {
	var all []string
	for _, r := range s.Prior {
		all = append(all, r.Observations...)
	}
	return all
}

// Result is the result of a step. It is stored with the turn.
//
// It has more fields than other structs because it is the Go form of the stored StepResult.
type Result struct {
	Step          int
	Agent         string
	Text          string         // the last text of the agent
	NextAgent     string         // the agent to hand over to; a request that the orchestrator checks
	InputRequired bool           // Text is a question to the user, which ends the turn
	Pending       []Pending      // calls that wait for an answer; only with InputRequired
	Stopped       bool           // a person or a handler stopped the agent; the turn ends with Text
	Observations  []string       // notes for later steps, at most 4 KiB each
	ToolsCalled   []string       // names, in the order of the calls
	Iterations    int            // model calls with their tool rounds
	Usage         Usage          // usage of the models
	Confidence    *float64       // 0 to 1 (nil when the agent does not judge)
	Sequence      int64          // sequence of the last message of the session after the commit
	Tasks         []PlannedTask  // the next tasks of a planner, in order
	Failure       *failure.Error // why the step failed (nil if it did not)

	Used      *budget.Amounts // budget used by this attempt (nil when its worker does not count)
	Inherited bool            // an earlier turn ran the step, and this turn reuses its result
	// Incomplete says why Text may not be all that the agent would have said: event.MaxIterations if it stopped at its
	// limit of iterations, and otherwise the event.Finish of the model's answer (empty means that Text is complete).
	Incomplete string
	Untrusted  string // first untrusted source that the step has read, as in conversation.Message (empty means none)
}

// Usage counts the calls, tokens and costs of models.
type Usage struct {
	InputTokens  int64 // including cached input tokens
	OutputTokens int64
	ModelCalls   int
	CostMicros   int64 // in millionths of a US dollar (0 means unknown)

	CachedTokens     int64 // part of the input that the provider read from its cache
	CacheWriteTokens int64 // part of the input that the provider wrote to its cache
}

// Add returns the sum of two usages. A call whose cost is unknown adds 0.
func (u Usage) Add(o Usage) Usage {
	return Usage{
		InputTokens:  u.InputTokens + o.InputTokens,
		OutputTokens: u.OutputTokens + o.OutputTokens,
		ModelCalls:   u.ModelCalls + o.ModelCalls,
		CostMicros:   u.CostMicros + o.CostMicros,

		CachedTokens:     u.CachedTokens + o.CachedTokens,
		CacheWriteTokens: u.CacheWriteTokens + o.CacheWriteTokens,
	}
}
