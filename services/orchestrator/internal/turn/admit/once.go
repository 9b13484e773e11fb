package admit

import (
	"context"
	"errors"
	"sync"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// beginOnce begins the turn of a request, or finds it. Concurrent calls for the same request share one attempt. It
// waits for a permit, but not for the session. foundBusy says that the request already had a permit once and found
// its session busy. Such a request gets a permit at once.
func (a *Admitter) beginOnce(ctx context.Context, req request.Request, foundBusy bool) (memory.BeginResult, error) {
	key := req.TurnID() + req.Fingerprint()
	until, _ := ctx.Deadline()
	for {
		waiting, leave := a.callers.join(ctx, key)
		begun, err := runOnce(ctx, a, key, func(ctx context.Context) (memory.BeginResult, error) {
			permit, begun, err := a.acquirePermit(ctx, waiting, until, req, foundBusy)
			if permit == nil {
				return begun, err
			}
			begun, err = a.Begin(ctx, req, permit)
			if waiting.Err() != nil && req.CancelOnDisconnect && begun.Status == memory.StatusBegun {
				a.Abandoned(ctx, trace.Ref{Tenant: req.Tenant, Trace: begun.Turn.Trace})
			}
			return begun, err
		})
		leave()
		if !errors.Is(err, errCallersLeft) || ctx.Err() != nil {
			return begun, err
		}
	}
}

// runOnce lets concurrent calls with the same key share one execution. The execution continues when its callers
// leave. An orchestrator that stops waits for it.
func runOnce[T any](ctx context.Context, a *Admitter, key string, do func(context.Context) (T, error)) (T, error) {
	flight := a.flights.DoChan(key, func() (_ any, err error) {
		if !a.Drain.Enter() {
			return nil, active.ErrStopping
		}
		defer a.Drain.Leave()
		defer panics.Recover("turn.Orchestrate", &err)
		return do(context.WithoutCancel(ctx))
	})
	select {
	case result := <-flight:
		value, _ := result.Val.(T)
		return value, result.Err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// errCallersLeft is the cause with which an attempt ends after all its callers have left.
var errCallersLeft = errors.New("all callers have left")

// callerGroups counts the calls that wait for each request. It is safe for concurrent use.
type callerGroups struct {
	mu    sync.Mutex
	byKey map[string]*callerGroup
}

// callerGroup is the group of calls that wait for one request.
type callerGroup struct {
	count  int
	ctx    context.Context //nolint:containedctx // ends with the last of the calls
	cancel context.CancelCauseFunc
}

func newCallerGroups() *callerGroups { return &callerGroups{byKey: map[string]*callerGroup{}} }

// join adds a call to the group of its key. It returns a context that ends when all calls of the group have left.
func (c *callerGroups) join(ctx context.Context, key string) (_ context.Context, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.byKey[key]
	if !ok {
		w = &callerGroup{}
		w.ctx, w.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		c.byKey[key] = w
	}
	w.count++
	return w.ctx, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.count--; w.count == 0 {
			w.cancel(errCallersLeft)
			delete(c.byKey, key)
		}
	})
}

// CallerCount returns how many calls wait for the turn of a request to begin.
func (a *Admitter) CallerCount(req request.Request) int {
	a.callers.mu.Lock()
	defer a.callers.mu.Unlock()
	if w := a.callers.byKey[req.TurnID()+req.Fingerprint()]; w != nil {
		return w.count
	}
	return 0
}
