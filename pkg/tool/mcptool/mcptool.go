// Package mcptool gives agents the tools of MCP servers: programs that it runs (stdio), or servers at a URL
// (streamable HTTP), with the official SDK.
//
// A server is trusted no further than necessary. Its schemas are checked before they are used, and its results are
// bounded. What it says about its tools is read when the agent starts and stays as it was until the next start, so
// that a server cannot change what the author of the agent has seen.
package mcptool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Server is an MCP server as an agent knows it. It is safe for concurrent use.
//
// Nothing runs and nothing is connected before the first of its tools is started; closing the last one ends it. So
// a Server without an agent leaves nothing behind, and several agents can share one. A lost server is restarted:
// the current call fails, and the next one finds it again. A server that does not come back is tried at growing
// intervals, and calls in between fail at once and say so.
type Server struct {
	config Config
	log    *zap.Logger
	tools  []*remoteTool

	lockToken    chan struct{} // holds one token; its holder may use the fields below
	startedCount int           // number of started tools
	current      *link         // (nil means none)
	retry        *backoff.ExponentialBackOff
	retryAt      time.Time
	startErr     error // why there is no current link (nil if none was tried)
}

// Bounds of the backoff between attempts to start a server that does not start.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// New describes a server without calling it: what its tools do and accept is known once they are started. Invalid
// settings are user_invalid_input with the name of the field, as in YAML.
func New(c Config) (*Server, error) {
	if err := c.setDefaultsAndValidate(); err != nil {
		return nil, err
	}
	s := newServer(c)
	for i, name := range c.Tools {
		if slices.Contains(c.Tools[:i], name) {
			return nil, newConfigError("tools[%d]: %q is there already", i, name)
		}
		r := newRemote(s, name)
		if twin := slices.IndexFunc(s.tools, func(t *remoteTool) bool { return t.publicName == r.publicName }); twin >= 0 {
			return nil, newConfigError("tools[%d]: %q and %q are both called %s for the model; leave one out", i, s.tools[twin].name, name, r.publicName)
		}
		s.tools = append(s.tools, r)
	}
	if len(s.tools) == 0 {
		return nil, newConfigError("tools is missing: name those that the agent may use")
	}
	return s, nil
}

func newServer(c Config) *Server {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = firstRetry, lastRetry
	return &Server{
		config:    c,
		log:       c.Log.With(zap.String("mcp_server", c.displayName())),
		lockToken: make(chan struct{}, 1),
		retry:     retry,
	}
}

// Names starts a server, lists its tools and ends it. It returns the names that are valid in Config.Tools, and
// ignores Config.Tools itself. It takes at most the start timeout.
func Names(ctx context.Context, c Config) ([]string, error) {
	if err := c.setDefaultsAndValidate(); err != nil {
		return nil, err
	}
	l, err := newServer(c).dial(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	var names []string
	for _, t := range l.cachedTools() {
		names = append(names, t.Name)
	}
	return names, nil
}

// Tools returns the tools of the Config, in its order. Each is a tool.Starter.
func (s *Server) Tools() []tool.Tool {
	all := make([]tool.Tool, len(s.tools))
	for i, t := range s.tools {
		all[i] = t
	}
	return all
}

// lock acquires the server's lock, or returns the error of ctx. unlock releases the lock.
func (s *Server) lock(ctx context.Context) error {
	select {
	case s.lockToken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) unlock() { <-s.lockToken }

// start counts a started tool. The first one connects to the server.
func (s *Server) start(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if s.startedCount == 0 {
		l, err := s.dial(ctx)
		if err == nil {
			if err = s.storeDefinitions(l.cachedTools()); err != nil {
				l.close()
			}
		}
		if err != nil {
			return err
		}
		s.current = l
		s.retry.Reset()
	}
	s.startedCount++
	return nil
}

// stop uncounts a closed tool. The last one disconnects from the server.
func (s *Server) stop() {
	s.lockToken <- struct{}{}
	defer s.unlock()
	if s.startedCount--; s.startedCount > 0 || s.current == nil {
		return
	}
	s.current.close()
	s.current, s.startErr, s.retryAt = nil, nil, time.Time{}
}

// getLink returns the current link to the server. If that link is lost, getLink connects again.
func (s *Server) getLink(ctx context.Context) (*link, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	switch {
	case s.startedCount == 0:
		return nil, s.newServerError(failure.AgentState, "is not started; start the agent first")
	case s.current != nil && s.current.isAlive(ctx):
		return s.current, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	if s.current != nil {
		s.log.Warn("the server was lost and is started again", zap.Error(s.current.lostCause()))
		s.current.close()
		s.current = nil
	}
	if wait := time.Until(s.retryAt); wait > 0 {
		return nil, failure.Newf(failure.ResourceTool, "mcptool.Server", "%s; it is tried again in %s", failure.PlainMessage(s.startErr),
			wait.Round(time.Millisecond)).Because(s.startErr)
	}
	l, err := s.dial(ctx)
	if ctx.Err() != nil && err != nil {
		return nil, ctx.Err() // the caller's context ended; the server may be fine
	}
	if err != nil {
		s.startErr, s.retryAt = err, time.Now().Add(s.retry.NextBackOff())
		return nil, err
	}
	s.retry.Reset()
	s.current = l
	s.logChangedDefinitions(l.cachedTools())
	return l, nil
}

// newServerError returns an error whose message names the server.
func (s *Server) newServerError(mode failure.Mode, format string, args ...any) *failure.Error {
	return failure.Newf(mode, "mcptool.Server", "the MCP server %s %s", s.config.displayName(), fmt.Sprintf(format, args...))
}
