package mcptool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe/pkg/tool"
)

// runningCalls are the running calls of a link, by the token with which their server reports progress (LP-29).
type runningCalls struct {
	last    atomic.Int64
	waiting sync.Map // token to context.Context
}

// register returns the token of a call, and a function that forgets it.
func (c *runningCalls) register(ctx context.Context) (token string, forget func()) {
	token = fmt.Sprintf("call-%d", c.last.Add(1))
	c.waiting.Store(token, ctx)
	return token, func() { c.waiting.Delete(token) }
}

// report passes on the progress of a call. It drops reports for unknown or ended calls.
func (c *runningCalls) report(p *mcp.ProgressNotificationParams) {
	if p == nil {
		return
	}
	if ctx, ok := c.waiting.Load(p.ProgressToken); ok {
		tool.Progress(ctx.(context.Context), p.Progress, p.Total, p.Message)
	}
}
