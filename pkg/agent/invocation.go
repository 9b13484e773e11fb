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

// Invocation is one run of an agent.
type Invocation struct {
	Step execution.Step
	// Store gives access to the session's state, artifacts and history (nil if there is no session).
	Store hook.Store
	// Trace is the part of the trace that the orchestrator shares with the agent.
	Trace ownership.TraceView
	// Stop asks the agent to stop when it ends (CO-63, nil never asks).
	Stop context.Context //nolint:containedctx // a second signal: ctx ends the run
	// MaxIterations overrides the agent's limit (0 keeps that, CO-6).
	MaxIterations int

	scope scope.Scope
	call  int    // number of the run of a function
	key   string // its identity, if a journal has it
}

// Branch returns the path of the agent that runs, which begins with its outermost parent: "team.writer". It is for a Run
// of an agent's own.
func (inv Invocation) Branch() string { return inv.scope.Branch }

// Key returns the identity of this call of the agent's Run function. It is the same in all attempts of the step,
// and in a turn that continues with pending calls. It differs from every other run in the step. Work that the
// function requests from others under this key is done once.
func (inv Invocation) Key() string {
	return cmp.Or(inv.key, scope.CallKey(inv.Step, inv.call))
}

// Call returns the number of this call of the agent's Run function among the calls of the step, from 1. Agents
// that run at the same time have different numbers.
func (inv Invocation) Call() int { return inv.call }

// Concurrency returns how many agents may run at the same time at the place of this run, itself included.
func (inv Invocation) Concurrency() int { return inv.scope.Calls.Concurrent() }

// Prompt returns the request for an agent that does not see the conversation: the user's last text, then the
// agent's task, and then the findings of earlier steps.
func (inv Invocation) Prompt() string { return briefing.Prompt(inv.Step) }

// Untrusted returns the first source of words in what the run is given that neither the user nor the author of the agent
// wrote (empty when there are none, S14). A Run that asks others must hand it on.
func (inv Invocation) Untrusted() string {
	source := conversation.UntrustedSource(inv.Step.History)
	for _, r := range inv.Step.Prior {
		source = cmp.Or(source, r.Untrusted)
	}
	return source
}

// forFunction returns the invocation of agent a's function. Agents that the function runs with it are its
// children.
func (inv Invocation) forFunction(a *Agent) Invocation {
	inv.scope = inv.scope.Inside(a.Name(), a.config.Guard)
	inv.call, inv.key = inv.scope.Calls.Next(), ""
	if j := inv.Step.Journal; j != nil && !a.isFlow { // a flow does no work of its own that others would repeat
		inv.key = inv.recordKey(j, a.Name())
	}
	return inv
}

// recordKey returns the key of a run of a function, which is the key of the turn in which it ran first.
func (inv Invocation) recordKey(j execution.Journal, agent string) string {
	if e, ok := j.Replay(inv.call, execution.Intent); ok && e.Tool == agent && e.Text != "" {
		return e.Text
	}
	key := inv.Key()
	j.Record(execution.Entry{Number: inv.call, Phase: execution.Intent, Tool: agent, Text: key})
	return key
}

// info returns the view of the invocation for handlers and tools of agent a.
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
		info.Branch = inv.scope.Path(a.Name())
	}
	return info
}

// executionContext returns ctx with the context in which the agent acts: a child of its parent's, or of the turn's.
// Handlers, models and tools find it with execution.ContextFrom.
func (inv Invocation) executionContext(ctx context.Context) context.Context {
	parent, ok := execution.ContextFrom(ctx)
	s := inv.Step
	if !ok {
		parent = s.Context
	}
	if parent.IsZero() {
		made, err := execution.NewContext(execution.Origin{
			TraceID: s.TraceID, RootTraceID: s.RootTraceID, UserID: s.User,
			ConversationID: s.SessionID, SessionID: s.SessionID,
		})
		if err != nil { // an agent that a program runs directly may have no trace
			return ctx
		}
		parent = made
	}
	return execution.WithContext(ctx, parent.WithUserIntent(briefing.Intent(s)))
}
