package admit

import (
	"context"
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// maxLookups is how many requests look for their turn at once before they wait for a permit. However
// many requests come, the memory service gets no more lookups than that at once.
const maxLookups = 64

// acquirePermit returns a permit for the turn of a request; or no permit, and the turn when it is known.
// Only a new turn waits for a permit. A turn that continues one that was begun before gets its permit at
// once. So does a child of a running turn, up to the fan-out of that one, because the parent would
// keep its own permit while it waits. Waiting ends when the callers have left.
func (a *Admitter) acquirePermit(
	ctx, waiting context.Context, until time.Time, req request.Request, foundBusy bool,
) (*admission.Permit, memory.BeginResult, error) {
	parent := trace.Ref{Tenant: req.Tenant, Trace: req.ParentTrace}
	fanOut, isChild := a.maxChildrenHere(parent)
	if !isChild {
		if permit, ok := a.Permits.TryAdmit(req.Tenant); ok {
			return permit, memory.BeginResult{}, nil
		}
	}
	_, inDoubt := a.Decider.InDoubt.Peek(req.TurnID())
	if inDoubt || foundBusy || a.Active.OfSession(req.Ref) != nil { // it is that turn, or the session is busy
		return a.Permits.ForceAdmit(req.Tenant), memory.BeginResult{}, nil
	}
	if !isChild {
		fanOut, isChild = a.maxChildrenElsewhere(ctx, parent)
	}
	var fanOutErr error
	if isChild {
		permit, err := a.Permits.AdmitChild(req.Tenant, req.ParentTrace, fanOut)
		if err == nil {
			return permit, memory.BeginResult{}, nil
		}
		fanOutErr = err
	} else if req.IsAnswer() {
		return a.Permits.ForceAdmit(req.Tenant), memory.BeginResult{}, nil
	}
	select {
	case a.lookups <- struct{}{}:
		begun, abandoned, err := a.findTurn(ctx, req)
		<-a.lookups
		switch {
		case err != nil || begun.Status != "":
			return nil, begun, err
		case abandoned, a.waitsForOtherTurn(ctx, req):
			return a.Permits.ForceAdmit(req.Tenant), memory.BeginResult{}, nil
		}
	default: // a known turn is found when the request is repeated
	}
	if fanOutErr != nil {
		return nil, memory.BeginResult{}, fanOutErr
	}
	permit, err := a.Permits.Admit(waiting, req.Tenant, until)
	return permit, memory.BeginResult{}, err
}

// findTurn looks for the turn of a request without beginning it. Abandoned reports that the turn is open and
// that its lease has run out, so that it has to be taken over.
func (a *Admitter) findTurn(ctx context.Context, req request.Request) (_ memory.BeginResult, abandoned bool, _ error) {
	decided, err := a.Decider.Decide(ctx, req)
	if err != nil {
		return memory.BeginResult{}, false, err
	}
	begun, found, err := a.Decider.LookUpTurn(ctx, decided.Begin)
	switch found {
	case decide.Absent:
		return memory.BeginResult{}, false, decided.TargetErr
	case decide.LeaseExpired:
		return memory.BeginResult{}, true, decided.TargetErr
	default:
		return begun, false, err
	}
}

// waitsForOtherTurn reports whether a request waits for an open turn of another orchestrator. Then asking for
// its own turn begins none, and returns which turn to interrupt.
func (a *Admitter) waitsForOtherTurn(ctx context.Context, req request.Request) bool {
	if req.OnBusy == request.Reject {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	s, err := a.Decider.Memory.GetSession(ctx, req.Ref)
	return err == nil && s.OpenTurn != ""
}

// maxChildrenHere returns how many children the turn of a trace may have at once, if it runs here.
func (a *Admitter) maxChildrenHere(parent trace.Ref) (fanOut int64, runs bool) {
	if parent.Trace == "" {
		return 0, false
	}
	turn := a.Active.OfTrace(parent)
	if turn == nil {
		return 0, false
	}
	return turn.MaxChildren, true
}

// maxChildrenElsewhere returns how many children the turn of a trace may have at once, if it runs at another
// orchestrator.
func (a *Admitter) maxChildrenElsewhere(ctx context.Context, parent trace.Ref) (fanOut int64, runs bool) {
	if parent.Trace == "" {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	found, err := a.Traces.Store().Load(ctx, parent)
	if err != nil || found.Record.GetState() != troupev1.TraceState_TRACE_STATE_RUNNING {
		return 0, false
	}
	flow, _, _ := a.Decider.Resolve(found.Record.GetTarget())
	return request.LabelsOf(found).AllowanceOr(flow.Budget).Limits.FanOut, true
}
