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
// that runs waits for, up to as many as that may ask for. Waiting ends when the callers have left.
func (r *Runner) enterGate(ctx, waiting context.Context, until time.Time, req Request) (*gate.Pass, memory.Begun, error) {
	above := trace.Ref{Tenant: req.Tenant, Trace: req.Above}
	most, below := r.widthHere(above)
	if !below {
		if pass, ok := r.Gate.Try(req.Tenant); ok {
			return pass, memory.Begun{}, nil
		}
	}
	if _, unsure := r.unsure.look(req.turnID()); unsure || req.passed || r.seats.driven(req.ref()) != nil { // then it is that turn, or the session is busy
		return r.Gate.Force(req.Tenant), memory.Begun{}, nil
	}
	if !below {
		most, below = r.widthElsewhere(ctx, above)
	}
	var full error
	if below {
		pass, err := r.Gate.Below(req.Tenant, req.Above, most)
		if err == nil {
			return pass, memory.Begun{}, nil
		}
		full = err
	} else if len(req.Answers) > 0 {
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
	if full != nil {
		return nil, memory.Begun{}, full
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

// widthHere is how many turns the turn of a trace may ask for, if it is driven here.
func (r *Runner) widthHere(ref trace.Ref) (most int64, runs bool) {
	if ref.Trace == "" {
		return 0, false
	}
	t := r.seats.traced(ref)
	if t == nil {
		return 0, false
	}
	return t.width, true
}

// widthElsewhere is how many turns the turn of a trace may ask for, if it was let in elsewhere and has
// not ended.
func (r *Runner) widthElsewhere(ctx context.Context, ref trace.Ref) (most int64, runs bool) {
	if ref.Trace == "" {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	found, err := r.Traces.Store().Load(ctx, ref)
	if err != nil || found.Record.GetState() != troupev1.TraceState_TRACE_STATE_RUNNING {
		return 0, false
	}
	flow, _, _ := r.resolve(found.Record.GetTarget())
	return labelsOf(found).allowed(flow.Budget).Limits.FanOut, true
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
