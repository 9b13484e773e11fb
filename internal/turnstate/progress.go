package turnstate

import (
	"slices"
	"sync/atomic"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// Progress tracks the iterations and the usage of a turn, and whether the turn should end.
type Progress struct {
	iteration     int
	tools         []string
	usage         execution.Usage
	contextTokens int64
	stopReason    string // why the turn should stop (empty while it should continue)
	ended         bool
	escalated     atomic.Bool // tools run concurrently
}

// NextIteration starts the next iteration and returns its number, counted from 1.
func (p *Progress) NextIteration() int {
	p.iteration++
	return p.iteration
}

// Iteration returns the number of the running iteration (0 before the first).
func (p *Progress) Iteration() int { return p.iteration }

// AddTool records that a tool ran.
func (p *Progress) AddTool(tool string) { p.tools = append(p.tools, tool) }

// ToolsRun returns the names of the tools that ran in the turn, in order.
func (p *Progress) ToolsRun() []string { return slices.Clip(p.tools) }

// AddUsage adds the usage of a model call. side says that a handler made the call outside of the conversation; it
// then does not change ContextTokens.
func (p *Progress) AddUsage(u execution.Usage, side bool) {
	p.usage = p.usage.Add(u)
	if !side {
		p.contextTokens = u.InputTokens
	}
}

// Usage returns the total usage of models in the turn.
func (p *Progress) Usage() execution.Usage { return p.usage }

// ContextTokens returns the number of input tokens of the conversation's last model call (0 before the first).
func (p *Progress) ContextTokens() int64 { return p.contextTokens }

// RequestStop asks the turn to stop. Only the first reason is kept.
func (p *Progress) RequestStop(reason string) {
	if p.stopReason == "" {
		p.stopReason = reason
	}
}

// StopReason returns why the turn should stop (empty while it should continue).
func (p *Progress) StopReason() string { return p.stopReason }

// End marks the turn as ended by a handler.
func (p *Progress) End() { p.ended = true }

// Ended reports whether a handler ended the turn.
func (p *Progress) Ended() bool { return p.ended }

// Escalate asks the enclosing Repeat to stop. It is safe for concurrent use.
func (p *Progress) Escalate() { p.escalated.Store(true) }

// Escalated reports whether a handler or a tool called Escalate.
func (p *Progress) Escalated() bool { return p.escalated.Load() }
