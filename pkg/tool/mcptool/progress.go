package mcptool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe/pkg/tool"
)

// calls are those of a link that are under way, by the token under which their server says how
// far they are (LP-29).
type calls struct {
	last    atomic.Int64
	waiting sync.Map // token to context.Context
}

// expect returns the token of a call, and what forgets it.
func (c *calls) expect(ctx context.Context) (token string, forget func()) {
	token = fmt.Sprintf("call-%d", c.last.Add(1))
	c.waiting.Store(token, ctx)
	return token, func() { c.waiting.Delete(token) }
}

// heard passes on what a server says of a call. What it says of none, or too late, is dropped.
func (c *calls) heard(p *mcp.ProgressNotificationParams) {
	if p == nil {
		return
	}
	if ctx, ok := c.waiting.Load(p.ProgressToken); ok {
		tool.Progress(ctx.(context.Context), p.Progress, p.Total, p.Message)
	}
}
