// Package nested defines tools that run an agent inside a tool call.
package nested

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Tool is a tool whose inner model calls and tool calls are recorded in the journal of the step, such as an agent
// used as a tool. If the worker is lost, a successor continues inside the call, whatever the effect of the tool.
type Tool interface {
	tool.Tool
	// CallIn calls the tool as Call does, and fills in the result fields of c, even if it fails.
	CallIn(ctx context.Context, args json.RawMessage, c *Call) (tool.Result, error)
	// Skip applies the result fields of a call that an earlier attempt has finished.
	Skip(ctx context.Context, c *Call)
}

// Call describes a nested call: its place among the concurrent nested calls of the step, and its outcome.
type Call struct {
	Lane, Lanes    int             // index among the concurrent nested calls, from 0, and their number
	LastCallNumber int             // last call number used inside, in the numbering of the parent
	Usage          execution.Usage // usage of the inner model calls

	// Pending lists the inner calls that wait. The nested call then waits too: it has no result and is made again
	// when the turn continues.
	Pending []execution.Pending

	Recorded *execution.Entry // in a replay, how the call ended originally (nil otherwise)

	// Stopped is the reason why a person stopped an inner call and thereby the whole turn (empty while the turn
	// continues). StopParent sets it. A handler of the nested agent that stops its turn stops only that agent,
	// whose last text then becomes the result for the parent.
	Stopped string

	mu sync.Mutex // guards Stopped, because inner agents may run concurrently
}

// MaxReasonBytes is the size limit in bytes of the stop reason that a nested call keeps for its parent.
const MaxReasonBytes = 8 << 10

type callKey struct{}

// ContextWithCall returns a context for code that runs inside of c. A nil c ends the nesting, because code inside
// of other tools does not belong to the turn.
func ContextWithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// StopParent stops the turn that made the nested call of ctx. Only the first reason is kept. Outside of nested
// calls it does nothing.
func StopParent(ctx context.Context, reason string) {
	if c, _ := ctx.Value(callKey{}).(*Call); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.Stopped = cmp.Or(c.Stopped, reason)
	}
}
