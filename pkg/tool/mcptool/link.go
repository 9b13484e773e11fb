package mcptool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// link is one connection to a server, from the moment its tools are known until it is closed.
type link struct {
	server    *Server
	session   *mcp.ClientSession
	end       func() // of what is below the session; may be called twice
	tools     atomic.Pointer[[]*mcp.Tool]
	calls     runningCalls
	needsPing atomic.Bool // a call got no proper response: check before the next one
	changed   chan struct{}
	ended     chan struct{} // closed when the session is over
	cancel    context.CancelFunc
	working   sync.WaitGroup

	mu   sync.Mutex
	lost error // why it can no longer be used
}

// protocols are the versions to begin with. The SDK tries the newest way and falls back to the one before; some
// servers end at the first request that they do not know.
var protocols = []string{"", "2025-11-25"}

// Limits of what a server may send.
const (
	maxTools   = 1000
	maxMessage = 16 << 20 // bytes
	pingTime   = 2 * time.Second
)

// dial connects with the server, starting it if it is a program, and asks for its tools.
func (s *Server) dial(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.StartTimeout)
	defer cancel()
	var said string
	var err error
	for _, protocol := range protocols {
		var l *link
		if l, said, err = s.open(ctx, protocol); err == nil {
			l.begin()
			return l, nil
		}
		if ctx.Err() != nil || failure.Is(err, failure.UserInvalidInput) {
			break
		}
	}
	reason := ": " + failure.PlainMessage(err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		reason = fmt.Sprintf(" within %s", s.config.StartTimeout)
	case errors.Is(err, io.EOF):
		reason = ": it ended"
	}
	if said != "" {
		reason += "; it said: " + said
	}
	return nil, s.serverError(failure.ResourceTool, "did not start%s", reason).Because(err)
}

// open connects with one protocol version. An error contains the last lines of a program's stderr.
func (s *Server) open(ctx context.Context, protocol string) (_ *link, said string, err error) {
	l := &link{server: s, changed: make(chan struct{}, 1), ended: make(chan struct{})}
	transport, end, last, err := s.transport()
	if err != nil {
		return nil, "", err
	}
	l.end = end
	// The SDK ignores ctx in some waits. These waits end with the transport.
	gone := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(gone)
		end()
	})
	defer func() {
		if !unwatch() {
			<-gone
			err = ctx.Err()
		}
		if err == nil {
			return
		}
		end() // which may be the second time
		if l.session != nil {
			_ = l.session.Close() // the error that matters is the first
		}
		said = last()
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "troupe", Version: version()}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case l.changed <- struct{}{}:
			default: // another goroutine has reported it
			}
		},
		ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) { l.calls.report(n.Params) },
	})
	if l.session, err = client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: protocol}); err != nil {
		return nil, "", err
	}
	if err := l.list(ctx); err != nil {
		return nil, "", err
	}
	return l, "", nil
}

// version is the version of this program, for the server's log.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "dev"
}

// list asks for the tools, page by page.
func (l *link) list(ctx context.Context) error {
	var all []*mcp.Tool
	for t, err := range l.session.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		if all = append(all, t); len(all) > maxTools {
			return fmt.Errorf("it lists more than %d tools", maxTools)
		}
	}
	l.tools.Store(&all)
	return nil
}

func (l *link) findTools() []*mcp.Tool { return *l.tools.Load() }

// begin starts the background work of a link.
func (l *link) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.working.Go(func() {
		defer close(l.ended)
		if err := l.session.Wait(); err != nil {
			l.markLost(err)
		}
	})
	l.working.Go(func() {
		for {
			select {
			case <-l.ended:
				return
			case <-ctx.Done():
				return
			case <-l.changed:
				l.refresh(ctx)
			}
		}
	})
}

// refresh follows changes of the list of tools.
func (l *link) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.server.config.StartTimeout)
	defer cancel()
	if err := l.list(ctx); err != nil {
		l.server.log.Warn("the server says that its tools changed, and does not list them", zap.Error(err))
		return
	}
	l.server.compare(l.findTools())
}

// markLost marks the link as unusable.
func (l *link) markLost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = err
	}
}

func (l *link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// isAlive reports whether the link can be used. If a call got no response, the server is pinged; any response will
// do, a refusal too.
func (l *link) isAlive(ctx context.Context) bool {
	select {
	case <-l.ended:
		return false
	default:
	}
	if l.cause() != nil {
		return false
	}
	if !l.needsPing.Load() {
		return true
	}
	asking, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	err := l.session.Ping(asking, nil)
	if _, answered := errors.AsType[*jsonrpc.Error](err); err == nil || answered && rejectionOf(err) != nil {
		l.needsPing.Store(false)
		return true
	}
	if ctx.Err() == nil {
		l.markLost(fmt.Errorf("it gave no sign of life within %s: %w", pingTime, err))
	}
	return false
}

// close ends the link and waits for all that belongs to it.
func (l *link) close() {
	l.cancel()
	l.end()
	_ = l.session.Close() // it has ended
	l.working.Wait()
}
