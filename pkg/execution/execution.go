// Package execution is one agent's execution inside a turn: what it is given and what it
// leads to. Values are immutable once they are handed over.
package execution

import (
	"cmp"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// MaxObservations is how many a result may hold (guarantees S9).
const MaxObservations = 64

// Step is all that an agent is given for one execution. The agent keeps nothing of it
// afterwards (RA-1).
type Step struct {
	TraceID   string // never changes on the way
	SessionID string
	User      string // whose session it is; empty: nobody's
	TurnID    string
	Turn      int    // number in the session, from 1
	Number    int    // of the step in the turn, from 1
	Attempt   int    // from 1
	Agent     string // who shall run

	History []conversation.Message // the window that the agent may see, oldest first
	Prior   []Result               // of the steps before it in this turn
	Routes  []string               // agents to which the step may ask to hand on
	Silent  bool                   // what it says is for the steps behind it, and not for the session; it may not end the turn

	Tools *Tools // of its agent, which it may use; nil: all

	Answers []Answer // to calls that wait since a turn before this one, which this turn goes on with

	Asked              // what it is asked to do
	RootTraceID string // trace with which the run began; empty: TraceID

	Context Context // of the turn: under what it acts; zero: the agent makes one of the above

	Journal  Journal // of the step; nil: nothing is kept of it
	Recorded bool    // the journal gets all that is needed to run the step again

	Origin string // turn that did the step first, and failed in it; TurnID goes on in its place. Empty: TurnID

	Broker *broker.Session // makes the keys for credentials that its tools lack; nil: nobody can be asked for one

	Budget *budget.Ledger // what this attempt may use, and has used; all agents of the step share it; nil: nothing is bounded
}

// CallTurn is the turn under whose id idempotency keys are made: a tool that ran for a turn that
// failed knows its call again in the one that goes on.
func (s Step) CallTurn() string { return cmp.Or(s.Origin, s.TurnID) }

// Observations are those of the steps before this one, in order.
func (s Step) Observations() []string {
	var all []string
	for _, r := range s.Prior {
		all = append(all, r.Observations...)
	}
	return all
}

// Result is what a step led to. It is stored with the turn.
type Result struct {
	Step          int
	Agent         string
	Text          string    // what the agent said last
	NextAgent     string    // a request; the orchestrator checks it
	InputRequired bool      // Text is a question to the user that ends the turn
	Pending       []Pending // calls that wait for somebody, and the turn with them; only with InputRequired
	Stopped       bool      // somebody stopped the agent; the turn ends with Text
	Observations  []string  // for the steps after it, at most 4 KiB each
	ToolsCalled   []string  // in the order of the calls
	Iterations    int       // model calls with their tool rounds
	MaxIterations bool      // stopped at the limit; Text says so
	Usage         Usage
	Confidence    *float64       // 0 to 1; nil when the agent does not judge
	Sequence      int64          // last message of the session after the commit
	Tasks         []PlannedTask  // what a step that plans wants done next, in order
	Failure       *failure.Error // set when the step failed

	Used      *budget.Amounts // of the budget, by this attempt; nil: its worker does not count
	Inherited bool            // an earlier turn did it, and this one began with its result

	Untrusted string // first source of untrusted words that the step has read, as in conversation.Message; empty: none
}

// Usage is what model calls consumed.
type Usage struct {
	InputTokens  int64 // all of them, cached ones included
	OutputTokens int64
	ModelCalls   int
	CostMicros   int64 // in millionths of a US dollar; 0: not known

	CachedTokens     int64 // of the input: the provider had read them before
	CacheWriteTokens int64 // of the input: the provider keeps them to read again
}

// Add returns the sum of two usages. Its cost is that of the model calls whose cost is known.
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
