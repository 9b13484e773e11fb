// Package startup starts instances that registered before they were started (contract C-7, LC-34).
package startup

import (
	"context"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// startTimeout bounds the start of an instance, in addition to the timeout that its agent declares.
const startTimeout = 5 * time.Minute

// Connect returns a connection to an instance. The caller calls release once.
type Connect func(context.Context, registry.Instance) (conn *grpc.ClientConn, release func(), err error)

// Starter starts each instance once, no matter how many steps wait for it. Safe for concurrent use.
type Starter struct {
	connect Connect
	ctx     context.Context //nolint:containedctx // of the starts that run: a start outlives the step that asked for it
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	starts map[registry.Key]*StartupCall
}

// StartupCall is one Startup call to one incarnation of an instance.
type StartupCall struct {
	incarnation int64
	done        chan struct{}
	err         error // valid once done is closed
}

// NewStarter returns a starter. The caller closes it.
func NewStarter(connect Connect) *Starter {
	ctx, cancel := context.WithCancel(context.Background())
	return &Starter{connect: connect, ctx: ctx, cancel: cancel, starts: map[registry.Key]*StartupCall{}}
}

// Begin returns the start of an UNINITIALIZED instance. If there is none yet, it begins one. It does not wait for
// the result.
func (s *Starter) Begin(in registry.Instance) *StartupCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.starts[in.Key()]; ok && last.incarnation == in.Incarnation && !last.isRepeatable() {
		return last
	}
	begun := &StartupCall{incarnation: in.Incarnation, done: make(chan struct{})}
	s.starts[in.Key()] = begun
	s.running.Go(func() {
		defer close(begun.done)
		defer panics.Recover("dispatch.start", &begun.err)
		begun.err = s.runStart(in)
	})
	return begun
}

// ForgetUnneeded removes the starts of all instances that no longer need to be started.
func (s *Starter) ForgetUnneeded(registered []registry.Instance) {
	unstarted := map[registry.Key]bool{}
	for _, in := range registered {
		unstarted[in.Key()] = in.State == lifecycle.Uninitialized
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.starts, func(key registry.Key, _ *StartupCall) bool { return !unstarted[key] })
}

// errStarting is what Err returns while the start is still running.
var errStarting = failure.New(failure.AgentState, "dispatch", "the instance is still starting")

// Err returns nil once the instance is started. It does not wait.
func (s *StartupCall) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return errStarting
	}
}

// isRepeatable reports whether the start is worth retrying, because the worker never answered.
func (s *StartupCall) isRepeatable() bool {
	return failure.Is(s.Err(), failure.SystemNetwork, failure.PolicySecurity)
}

func (s *Starter) runStart(in registry.Instance) error {
	ctx, cancel := context.WithTimeout(s.ctx, startTimeout)
	defer cancel()
	conn, release, err := s.connect(ctx, in)
	if err != nil {
		return err
	}
	defer release()
	if _, err := troupev1.NewLifecycleServiceClient(conn).Startup(ctx, &troupev1.StartupRequest{}); err != nil {
		return grpcfailure.FromStatus("dispatch", err)
	}
	return nil
}

// Close stops waiting for running starts. The workers themselves continue to start.
func (s *Starter) Close() { s.cancel(); s.running.Wait() }
