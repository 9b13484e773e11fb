package dispatch

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// startTime bounds the start of an instance; its agent bounds it too.
const startTime = 5 * time.Minute

// starts starts instances that registered before they were started, each once, however
// many steps wait for it (contract C-7, LC-34). Safe for concurrent use.
type starts struct {
	pool    *Pool
	ctx     context.Context //nolint:containedctx // of the starts that run: a start outlives the step that asked for it
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	known map[registry.Key]*start
}

// start is one Startup of one incarnation.
type start struct {
	incarnation int64
	done        chan struct{}
	err         error // once done is closed
}

func newStarts(pool *Pool) *starts {
	ctx, cancel := context.WithCancel(context.Background())
	return &starts{pool: pool, ctx: ctx, cancel: cancel, known: map[registry.Key]*start{}}
}

// begun returns the start of an instance that is UNINITIALIZED, and begins it when nobody
// did. Like a step, it does not wait.
func (s *starts) begun(in registry.Instance) *start {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[in.Key()]; ok && known.incarnation == in.Incarnation && !known.again() {
		return known
	}
	made := &start{incarnation: in.Incarnation, done: make(chan struct{})}
	s.known[in.Key()] = made
	s.running.Go(func() {
		defer close(made.done)
		defer panics.Recover("dispatch.start", &made.err)
		made.err = s.start(in)
	})
	return made
}

// keep forgets the starts of instances that need none any more.
func (s *starts) keep(known []registry.Instance) {
	unstarted := map[registry.Key]bool{}
	for _, in := range known {
		unstarted[in.Key()] = in.State == lifecycle.Uninitialized
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(key registry.Key, _ *start) bool { return !unstarted[key] })
}

// errStarting is why an instance does not take a step yet.
var errStarting = failure.New(failure.AgentState, "dispatch", "the instance is still starting")

// outcome is nil once the instance was started.
func (s *start) outcome() error {
	select {
	case <-s.done:
		return s.err
	default:
		return errStarting
	}
}

// again reports whether a start is worth another try: the worker never answered.
func (s *start) again() bool {
	return failure.Is(s.outcome(), failure.SystemNetwork, failure.PolicySecurity)
}

func (s *starts) start(in registry.Instance) error {
	ctx, cancel := context.WithTimeout(s.ctx, startTime)
	defer cancel()
	conn, release, err := s.pool.Get(ctx, in)
	if err != nil {
		return err
	}
	defer release()
	if _, err := troupev1.NewLifecycleServiceClient(conn).Startup(ctx, &troupev1.StartupRequest{}); err != nil {
		return grpcfailure.FromStatus("dispatch", err)
	}
	return nil
}

// close ends the wait for the starts that run; the workers go on with them.
func (s *starts) close() { s.cancel(); s.running.Wait() }
