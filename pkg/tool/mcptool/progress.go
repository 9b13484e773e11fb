package mcptool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe/pkg/tool"
)

// runningCalls holds the contexts of the running calls of a link. The key is the token with which the server
// reports the progress of a call (LP-29).
type runningCalls struct {
	lastToken atomic.Int64
	contexts  sync.Map // token to context.Context
}

// register adds a call. It returns the token of the call and a function that removes the call.
func (c *runningCalls) register(ctx context.Context) (token string, forget func()) {
	token = fmt.Sprintf("call-%d", c.lastToken.Add(1))
	c.contexts.Store(token, ctx)
	return token, func() { c.contexts.Delete(token) }
}

// forwardProgress reports the progress of the call that the notification names. It drops notifications for unknown
// or ended calls.
func (c *runningCalls) forwardProgress(p *mcp.ProgressNotificationParams) {
	if p == nil {
		return
	}
	if ctx, ok := c.contexts.Load(p.ProgressToken); ok {
		tool.Progress(ctx.(context.Context), p.Progress, p.Total, p.Message)
	}
}
