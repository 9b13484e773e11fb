package agent

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Invocation is one run of an agent.
type Invocation struct {
	Step execution.Step
	// Store is the session's state, artifacts and past; nil: there is none.
	Store hook.Store
	// Trace is what the orchestrator says of the trace.
	Trace ownership.TraceView
	// Stop, when it ends, asks the agent to stop (CO-63); nil: nobody asks.
	Stop context.Context //nolint:containedctx // a signal beside the one that ends the run
	// MaxIterations overrides that of the agent; 0 does not (CO-6).
	MaxIterations int

	numbers *hook.Numbers // of the events; nil: begin
	memory  *hook.Memory  // that the agents of a flow share; nil: one of its own
	branch  string        // of the agent that runs this one
	key     func(number int) string
}

// info is what handlers and tools are told of the invocation.
func (a *Agent) info(inv Invocation) hook.Info {
	s := inv.Step
	info := hook.Info{
		Agent: a.Name(), Session: s.SessionID, User: s.User, TurnID: s.TurnID, TraceID: s.TraceID,
		Turn: s.Turn, Step: s.Number, Attempt: s.Attempt, Branch: inv.branch, Prompt: prompted(s),
	}
	if a.config.Model != nil {
		info.Model = a.config.Model.Name()
	}
	if inv.branch != "" {
		info.Branch += "." + a.Name()
	}
	return info
}

// idempotency is the key of the tool call of a number: the same in all attempts.
func (inv Invocation) idempotency(number int) string {
	if inv.key != nil {
		return inv.key(number)
	}
	return execution.CallKey(inv.Step.TurnID, inv.Step.Number, number)
}

// prompted is what the user said last.
func prompted(s execution.Step) string {
	for i := len(s.History) - 1; i >= 0; i-- {
		if m := s.History[i]; m.Role == "user" && m.Author == "" {
			return m.Text
		}
	}
	return ""
}
