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

// Tool is a tool that asks models and calls tools in the journal of the step itself, such as an agent that is a tool.
// The journal records each of its calls. So a successor continues the call where its worker was lost, whatever the
// effect of the tool is.
type Tool interface {
	tool.Tool
	// CallIn is Call for such a tool. It fills in the result fields of c, also when it fails.
	CallIn(ctx context.Context, args json.RawMessage, c *Call) (tool.Result, error)
	// Skip applies the result fields of a call that an earlier attempt finished.
	Skip(ctx context.Context, c *Call)
}

// Call is the place of a nested call among the numbers of its step, and what it led to.
type Call struct {
	Lane, Lanes int             // which of the concurrent nested calls it is (from 0), and how many there are
	Last        int             // the last number that it used, as its parent counts
	Usage       execution.Usage // of its models

	// Pending lists the calls inside of it that wait. The nested call waits with them: it has no result, and is made
	// again when the turn continues.
	Pending []execution.Pending

	// Stopped is why a person stopped a call inside of it, and with it the whole turn (empty while the turn
	// continues). StopParent sets it. A handler that stops the turn of the nested agent stops only that agent, whose
	// last text is then a result for its parent.
	Stopped string

	mu sync.Mutex // guards Stopped while agents inside run concurrently
}

// MaxReason is how many bytes of the reason of a stop a nested call keeps for its parent.
const MaxReason = 8 << 10

type callKey struct{}

// WithCall returns a context for what runs inside of c. A nil c ends the nesting: what runs inside of any other tool
// is not part of the turn.
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
