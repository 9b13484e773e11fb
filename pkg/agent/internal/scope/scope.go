// Package scope describes the place of an agent's run among the runs of a step. Agents that run inside each other
// share the numbers of events and calls and the state of the session. A scope says which of these a run has for
// itself. Package agent runs agents in their scopes. Package flow makes the scopes of agents that run at the same
// time, and of agents that are tools. The two exchange scopes through the context, so that authors do not see
// them.
package scope

import (
	"context"
	"sync"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Scope is the place of a run. The zero value is the place of a run that no other agent caused.
type Scope struct {
	Numbers  *hook.Numbers // assigns the numbers of events (nil starts at 1)
	Memory   *hook.Memory  // shared by the agents of a flow (nil makes one)
	Calls    *CallNumbers  // assigns the numbers of model and tool calls (nil starts at 1)
	Branch   string        // branch of the parent agent, such as team.writer (empty when there is none)
	IsSilent bool          // the run belongs to an agent that is a tool
	Guard    tool.Guard    // strictest guard of the parents (empty when there is none)
}

// WithDefaults fills in all missing parts of the scope for a run of the named agent.
func (s Scope) WithDefaults(agent string, store hook.Store) Scope {
	if s.Numbers == nil {
		s.Numbers = &hook.Numbers{}
	}
	if s.Calls == nil {
		s.Calls = &CallNumbers{}
	}
	if s.Memory == nil {
		s.Memory = hook.NewMemory(store, agent)
	}
	return s
}

// BranchOf returns the branch of an agent that runs in the scope.
func (s Scope) BranchOf(agent string) string {
	if s.Branch == "" {
		return agent
	}
	return s.Branch + "." + agent
}

// ForChildren returns the scope for the agents that run inside the named agent.
func (s Scope) ForChildren(agent string, mode tool.Guard) Scope {
	s.Branch = s.BranchOf(agent)
	s.Guard = mode.Stricter(s.Guard)
	return s
}

// Fork returns the scope of an agent that runs at the same time as others. It gets lane number lane (from 0) of
// lanes.
func (s Scope) Fork(agent string, lane, lanes int) Scope {
	s.Memory, s.Calls = s.Memory.Fork(agent), s.Calls.NewLane(lane, lanes)
	return s
}

// Run describes the running agent to the flows and agent tools inside it.
type Run struct {
	Scope Scope // scope for the agents that this agent runs
	Step  execution.Step
	Store hook.Store
	Trace ownership.TraceView
	Stop  context.Context //nolint:containedctx // a second signal: ctx ends the run

	mu    sync.Mutex
	usage execution.Usage // usage of agents called as tools that was not taken yet
}

// AddUsage adds the usage of an agent that this agent called as a tool. It is safe for concurrent use, because
// tools may run concurrently.
func (r *Run) AddUsage(u execution.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage = r.usage.Add(u)
}

// TakeUsage returns the usage added since its last call.
func (r *Run) TakeUsage() execution.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.usage
	r.usage = execution.Usage{}
	return u
}

// runKey is the context key of the *Run of the running agent.
type runKey struct{}

// WithRun returns a context that contains the running agent (nil outside of a turn).
func WithRun(ctx context.Context, r *Run) context.Context { return context.WithValue(ctx, runKey{}, r) }

// RunFromContext returns the running agent (nil outside of a turn).
func RunFromContext(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// scopeKey is the context key of the *Scope for the next agent.
type scopeKey struct{}

// ContextWithScope returns a context whose next agent runs in the scope s.
func ContextWithScope(ctx context.Context, s Scope) context.Context {
	return context.WithValue(ctx, scopeKey{}, &s)
}

// TakeScope returns the scope that ContextWithScope set (nil if there is none) and a context without it.
func TakeScope(ctx context.Context) (context.Context, *Scope) {
	s, _ := ctx.Value(scopeKey{}).(*Scope)
	if s == nil {
		return ctx, nil
	}
	return context.WithValue(ctx, scopeKey{}, (*Scope)(nil)), s
}

// JoinCalls joins the lanes of the branches that Fork returned. The next call of the scope gets a number after
// theirs.
func (s Scope) JoinCalls(branches []Scope) {
	lanes := make([]*CallNumbers, len(branches))
	for i, b := range branches {
		lanes[i] = b.Calls
	}
	s.Calls.JoinAll(lanes...)
}
