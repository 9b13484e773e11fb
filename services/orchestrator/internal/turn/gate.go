package turn

import (
	"context"
	"errors"
	"sync"
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	gate "github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// maxLookups is how many requests look for their turn at once before they wait at the gate.
// However many come, the memory service is not asked more than that in their name.
const maxLookups = 64

// enterGate lets a request in, or finds its turn: then there is no pass. Only what is new
// waits at the gate: what goes on with a turn that was begun before never does, nor what one
// that runs waits for. Waiting ends when the callers have left.
func (r *Runner) enterGate(ctx, waiting context.Context, until time.Time, req Request) (*gate.Pass, memory.Begun, error) {
	if pass, ok := r.Gate.Try(req.Tenant); ok {
		return pass, memory.Begun{}, nil
	}
	_, unsure := r.unsure.look(req.turnID())
	if unsure || req.passed || len(req.Answers) > 0 || r.runs(ctx, trace.Ref{Tenant: req.Tenant, Trace: req.Above}) || r.seats.driven(req.ref()) != nil { // then it is that turn, or the session is busy
		return r.Gate.Force(req.Tenant), memory.Begun{}, nil
	}
	select {
	case r.lookups <- struct{}{}:
		begun, left, err := r.find(ctx, req)
		<-r.lookups
		switch {
		case err != nil || begun.Found != "":
			return nil, begun, err
		case left, r.openElsewhere(ctx, req):
			return r.Gate.Force(req.Tenant), memory.Begun{}, nil
		}
	default: // if it is known it is found when it comes again
	}
	pass, err := r.Gate.Enter(waiting, req.Tenant, until)
	return pass, memory.Begun{}, err
}

// openElsewhere reports whether a request waits for a turn of its session that somebody else
// drives: to ask for its own begins nothing then, and says which turn is to be interrupted.
func (r *Runner) openElsewhere(ctx context.Context, req Request) bool {
	if req.OnBusy == Reject {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	s, err := r.Memory.GetSession(ctx, req.ref())
	return err == nil && s.OpenTurn != ""
}

// runs reports whether a trace is of a turn that was let in and has not ended, here or
// elsewhere.
func (r *Runner) runs(ctx context.Context, ref trace.Ref) bool {
	if ref.Trace == "" {
		return false
	}
	if r.seats.traced(ref) != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	record, err := r.Traces.Store().Get(ctx, ref)
	return err == nil && record.GetState() == troupev1.TraceState_TRACE_STATE_RUNNING
}

// errLeft ends what nobody waits for any more.
var errLeft = errors.New("all callers have left")

// callers know for which requests somebody still waits. Safe for concurrent use.
type callers struct {
	mu    sync.Mutex
	known map[string]*interest // by what they wait for
}

// interest is that of all callers of one request.
type interest struct {
	callers int
	ctx     context.Context //nolint:containedctx // of those who wait, and not of one call
	end     context.CancelCauseFunc
}

func newCallers() *callers { return &callers{known: map[string]*interest{}} }

// join returns a context that ends when all who joined for the same have left.
func (c *callers) join(ctx context.Context, key string) (_ context.Context, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.known[key]
	if !ok {
		in = &interest{}
		in.ctx, in.end = context.WithCancelCause(context.WithoutCancel(ctx))
		c.known[key] = in
	}
	in.callers++
	return in.ctx, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if in.callers--; in.callers == 0 {
			in.end(errLeft)
			delete(c.known, key)
		}
	})
}
