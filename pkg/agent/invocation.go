package agent

import (
	"cmp"
	"context"

	"github.com/troupe-dev/troupe/pkg/agent/internal/briefing"
	"github.com/troupe-dev/troupe/pkg/agent/internal/scope"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Invocation holds the input of one run of an agent.
type Invocation struct {
	Step execution.Step
	// Store gives access to the session's state, artifacts and history (nil if there is no session).
	Store hook.Store
	// Trace is the part of the trace that the orchestrator shows to the agent.
	Trace ownership.TraceView
	// Stop requests a stop of the agent when this context ends (CO-63, nil never does).
	Stop context.Context //nolint:containedctx // a second signal: ctx ends the run
	// MaxIterations overrides the agent's limit (0 keeps the agent's own, CO-6).
	MaxIterations int

	scope      scope.Scope
	callNumber int    // number of this call of a Run function
	key        string // identity of that call, if the journal recorded one
}

// Branch returns the path of the running agent, such as "team.writer". The path begins with its outermost parent. It is for agents
// with their own Run function.
func (inv Invocation) Branch() string { return inv.scope.Branch }

// Key identifies this call of the agent's Run function within the step. It is the same in all attempts of the step, and in a turn that
// continues with pending calls. Pass it to other systems as an idempotency key, so that requested work is done once.
func (inv Invocation) Key() string { return cmp.Or(inv.key, scope.CallKey(inv.Step, inv.callNumber)) }

// Call returns the number of this call of the agent's Run function among the calls of the step, from 1. Agents that run at the same
// time have different numbers.
func (inv Invocation) Call() int { return inv.callNumber }

// Concurrency returns how many agents may run at the same time at the place of this run, itself included.
func (inv Invocation) Concurrency() int { return inv.scope.Calls.LaneCount() }

// Prompt returns the request for an agent that does not see the conversation: the user's last text, then the agent's task, and then
// the findings of earlier steps.
func (inv Invocation) Prompt() string { return briefing.Prompt(inv.Step) }

// Untrusted returns the source of the first untrusted text in the input of the run (empty if there is none, S14). Text is untrusted if
// neither the user nor the author of the agent wrote it. A Run function that sends requests to other agents must pass the source on.
func (inv Invocation) Untrusted() string {
	source := conversation.UntrustedSource(inv.Step.History)
	for _, r := range inv.Step.Prior {
		source = cmp.Or(source, r.Untrusted)
	}
	return source
}

// forFunction returns the invocation that agent a's function gets. Agents that the function runs with it are a's children.
func (inv Invocation) forFunction(a *Agent) Invocation {
	inv.scope = inv.scope.ForChildren(a.Name(), a.config.Guard)
	inv.callNumber, inv.key = inv.scope.Calls.Next(), ""
	if j := inv.Step.Journal; j != nil && !a.isFlow { // a flow does no work of its own that others would repeat
		inv.key = inv.recordKey(j, a.Name())
	}
	return inv
}

// recordKey returns the key of a run of a function and records it in the journal. If the journal already has a key of an earlier run,
// it returns that key.
func (inv Invocation) recordKey(j execution.Journal, agent string) string {
	if e, ok := j.Replay(inv.callNumber, execution.Intent); ok && e.Tool == agent && e.Text != "" {
		return e.Text
	}
	key := inv.Key()
	j.Record(execution.Entry{Number: inv.callNumber, Phase: execution.Intent, Tool: agent, Text: key})
	return key
}

// info returns the data of the invocation that handlers and tools of agent a can read.
func (inv Invocation) info(a *Agent) hook.Info {
	s := inv.Step
	info := hook.Info{
		Agent: a.Name(), Session: s.SessionID, User: s.User, TurnID: s.TurnID, TraceID: s.TraceID,
		Turn: s.Turn, Step: s.Number, Attempt: s.Attempt, Prompt: briefing.UserPrompt(s), Routes: s.Routes,
	}
	if a.config.Model != nil {
		info.Model = a.config.Model.Name()
		if m, ok := a.config.Model.(llm.ContextSizer); ok {
			info.Context = m.ContextSize()
		}
	}
	if inv.scope.Branch != "" {
		info.Branch = inv.scope.BranchOf(a.Name())
	}
	return info
}
