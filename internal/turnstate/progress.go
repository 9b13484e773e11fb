package turnstate

import (
	"slices"
	"sync/atomic"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// Progress says how far a turn is, and whether it is to end.
type Progress struct {
	iteration     int
	tools         []string
	usage         execution.Usage
	contextTokens int64
	stop          string // why the turn is to stop (empty while it continues)
	ended         bool
	escalated     atomic.Bool // tools run concurrently
}

// NextIteration begins the next iteration and returns its number, from 1.
func (p *Progress) NextIteration() int {
	p.iteration++
	return p.iteration
}

// Iteration returns the number of the running iteration (0 before the first).
func (p *Progress) Iteration() int { return p.iteration }

// ToolRan records that a tool ran.
func (p *Progress) ToolRan(tool string) { p.tools = append(p.tools, tool) }

// Tools returns the tools that ran in the turn, in order.
func (p *Progress) Tools() []string { return slices.Clip(p.tools) }

// AddUsage adds the usage of a model call. A side call of a handler does not change ContextTokens.
func (p *Progress) AddUsage(u execution.Usage, side bool) {
	p.usage = p.usage.Add(u)
	if !side {
		p.contextTokens = u.InputTokens
	}
}

// Usage returns the usage of models in the turn.
func (p *Progress) Usage() execution.Usage { return p.usage }

// ContextTokens returns how many tokens the last model call of the conversation read (0 before the first).
func (p *Progress) ContextTokens() int64 { return p.contextTokens }

// Stop asks the turn to stop. The first reason counts.
func (p *Progress) Stop(reason string) {
	if p.stop == "" {
		p.stop = reason
	}
}

// StopReason returns why the turn is to stop (empty while it continues).
func (p *Progress) StopReason() string { return p.stop }

// End ends the turn at once.
func (p *Progress) End() { p.ended = true }

// Ended reports whether a handler ended the turn.
func (p *Progress) Ended() bool { return p.ended }

// Escalate asks for the end of the enclosing Repeat. Safe for concurrent use.
func (p *Progress) Escalate() { p.escalated.Store(true) }

// Escalated reports whether a handler or a tool called Escalate.
func (p *Progress) Escalated() bool { return p.escalated.Load() }
