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

// link is one connection to a server. It exists once the server's tools are known, and until it is closed.
type link struct {
	server         *Server
	session        *mcp.ClientSession
	closeTransport func() // ends the transport below the session; may be called twice
	tools          atomic.Pointer[[]*mcp.Tool]
	calls          runningCalls
	needsPing      atomic.Bool // the last call got no proper response: ping before the next one
	toolsChanged   chan struct{}
	done           chan struct{} // closed when the session has ended
	cancel         context.CancelFunc
	background     sync.WaitGroup

	mu      sync.Mutex
	lostErr error // why the link can no longer be used (nil while it can)
}

// protocolVersions lists the protocol versions to try, in order. The SDK tries the newest version first and falls back to
// the one before. Some servers exit at the first request that they do not know, so the older version is tried on a
// new connection.
var protocolVersions = []string{"", "2025-11-25"}

// Limits of what a server may send.
const (
	maxTools    = 1000
	maxMessage  = 16 << 20 // bytes
	pingTimeout = 2 * time.Second
)

// dial connects to the server and lists its tools. It starts the server if it is a program.
func (s *Server) dial(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.StartTimeout)
	defer cancel()
	var said string
	var err error
	for _, protocol := range protocolVersions {
		var l *link
		if l, said, err = s.openLink(ctx, protocol); err == nil {
			l.startWatching()
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
	return nil, s.newServerError(failure.ResourceTool, "did not start%s", reason).Because(err)
}

// openLink connects with one protocol version. After an error, said holds the last lines of the program's stderr.
func (s *Server) openLink(ctx context.Context, protocol string) (_ *link, said string, err error) {
	l := &link{server: s, toolsChanged: make(chan struct{}, 1), done: make(chan struct{})}
	transport, end, last, err := s.transport()
	if err != nil {
		return nil, "", err
	}
	l.closeTransport = end
	// The SDK ignores ctx in some waits. Closing the transport ends these waits.
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
		end() // end may have been called before
		if l.session != nil {
			_ = l.session.Close() // only the first error matters
		}
		said = last()
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "troupe", Version: version()}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case l.toolsChanged <- struct{}{}:
			default: // a change is already pending
			}
		},
		ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) { l.calls.forwardProgress(n.Params) },
	})
	if l.session, err = client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: protocol}); err != nil {
		return nil, "", err
	}
	if err := l.listTools(ctx); err != nil {
		return nil, "", err
	}
	return l, "", nil
}

// version returns the version of this program, which the server may log.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "dev"
}

// listTools requests all pages of the tool list and caches the tools.
func (l *link) listTools(ctx context.Context) error {
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

func (l *link) cachedTools() []*mcp.Tool { return *l.tools.Load() }

// startWatching starts the goroutines that notice the end of the session and changes of the tool list.
func (l *link) startWatching() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.background.Go(func() {
		defer close(l.done)
		if err := l.session.Wait(); err != nil {
			l.markLost(err)
		}
	})
	l.background.Go(func() {
		for {
			select {
			case <-l.done:
				return
			case <-ctx.Done():
				return
			case <-l.toolsChanged:
				l.refreshTools(ctx)
			}
		}
	})
}

// refreshTools lists the tools again after the server reported a change, and logs what differs.
func (l *link) refreshTools(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.server.config.StartTimeout)
	defer cancel()
	if err := l.listTools(ctx); err != nil {
		l.server.log.Warn("cannot list the server's tools after it reported a change", zap.Error(err))
		return
	}
	l.server.logChangedDefinitions(l.cachedTools())
}

// markLost records why the link can no longer be used. Only the first reason counts.
func (l *link) markLost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostErr == nil {
		l.lostErr = err
	}
}

func (l *link) lostCause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostErr
}

// isAlive reports whether the link can be used. If the last call got no response, it pings the server. Any
// response will do, even an error.
func (l *link) isAlive(ctx context.Context) bool {
	select {
	case <-l.done:
		return false
	default:
	}
	if l.lostCause() != nil {
		return false
	}
	if !l.needsPing.Load() {
		return true
	}
	asking, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := l.session.Ping(asking, nil)
	if _, answered := errors.AsType[*jsonrpc.Error](err); err == nil || answered && rejectionFromError(err) != nil {
		l.needsPing.Store(false)
		return true
	}
	if ctx.Err() == nil {
		l.markLost(fmt.Errorf("it did not respond to a ping within %s: %w", pingTimeout, err))
	}
	return false
}

// close ends the session and waits until all goroutines of the link have ended.
func (l *link) close() {
	l.cancel()
	l.closeTransport()
	_ = l.session.Close() // the session has ended already
	l.background.Wait()
}
