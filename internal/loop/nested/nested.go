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

// Tool is a tool whose model calls and tool calls go to the journal of the step itself, such as an agent used as
// a tool. The journal records each of these calls. So a successor continues the call where its worker was lost,
// whatever the effect of the tool.
type Tool interface {
	tool.Tool
	// CallIn is Call for such a tool. It fills in the result fields of c, also when it fails.
	CallIn(ctx context.Context, args json.RawMessage, c *Call) (tool.Result, error)
	// Skip applies the result fields of a call that an earlier attempt finished.
	Skip(ctx context.Context, c *Call)
}

// Call is a nested call: its numbers within the step, and its outcome.
type Call struct {
	Lane, Lanes int             // which of the concurrent nested calls it is (from 0), and how many there are
	Last        int             // the last number that it used, as its parent counts
	Usage       execution.Usage // of its models

	// Pending lists the inner calls that wait. The nested call waits with them: it has no result, and is made again
	// when the turn continues.
	Pending []execution.Pending

	// Stopped is why a person stopped an inner call and with it the whole turn (empty while the turn continues).
	// StopParent sets it. A handler that stops the turn of the nested agent stops only that agent. Its last text is
	// then a result for its parent.
	Stopped string

	mu sync.Mutex // guards Stopped while agents inside run concurrently
}

// MaxReason limits the stop reason that a nested call keeps for its parent, in bytes.
const MaxReason = 8 << 10

type callKey struct{}

// WithCall returns a context for the code that runs inside of c. A nil c ends the nesting, because code inside
// of other tools is not part of the turn.
func WithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// StopParent stops the turn that the nested call of ctx belongs to. The first reason counts. Outside of nested calls
// it does nothing.
func StopParent(ctx context.Context, reason string) {
	if c, _ := ctx.Value(callKey{}).(*Call); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.Stopped = cmp.Or(c.Stopped, reason)
	}
}
