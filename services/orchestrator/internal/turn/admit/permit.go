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

// maxLookups is how many requests may look up their turn at once before they wait for a permit. It bounds the load
// on the memory service, however many requests arrive.
const maxLookups = 64

// acquirePermit returns a permit for the turn of a request. If the turn already exists, it returns the turn and no
// permit. Only a new turn waits for a permit. A turn that continues an earlier one gets a permit at once. So does
// a child of a running turn, up to the parent's fan-out, because the parent keeps its own permit while it waits.
// The wait ends when all callers have left.
func (a *Admitter) acquirePermit(
	ctx, waiting context.Context, until time.Time, req request.Request, foundBusy bool,
) (*admission.Permit, memory.BeginResult, error) {
	parent := trace.Ref{Tenant: req.Tenant, Trace: req.ParentTrace}
	fanOut, isChild := a.maxChildrenOfLocalTurn(parent)
	if !isChild {
		if permit, ok := a.Permits.TryAdmit(req.Tenant); ok {
			return permit, memory.BeginResult{}, nil
		}
	}
	_, inDoubt := a.Decider.InDoubt.Peek(req.TurnID())
	if inDoubt || foundBusy || a.Active.FindBySession(req.Ref) != nil { // it is that turn, or the session is busy
		return a.Permits.ForceAdmit(req.Tenant), memory.BeginResult{}, nil
	}
	if !isChild {
		fanOut, isChild = a.maxChildrenOfRemoteTurn(ctx, parent)
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
	case a.lookupSlots <- struct{}{}:
		begun, abandoned, err := a.findTurn(ctx, req)
		<-a.lookupSlots
		switch {
		case err != nil || begun.Status != "":
			return nil, begun, err
		case abandoned, a.waitsForOtherTurn(ctx, req):
			return a.Permits.ForceAdmit(req.Tenant), memory.BeginResult{}, nil
		}
	default: // if the turn exists, BeginTurn finds it
	}
	if fanOutErr != nil {
		return nil, memory.BeginResult{}, fanOutErr
	}
	permit, err := a.Permits.Admit(waiting, req.Tenant, until)
	return permit, memory.BeginResult{}, err
}

// findTurn looks up the turn of a request without beginning it. abandoned reports that the turn is open but its
// lease has expired, so that it must be taken over.
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

// waitsForOtherTurn reports whether a request may wait and its session has an open turn. In that case the request
// to begin the turn begins nothing, and the reply says which turn to interrupt.
func (a *Admitter) waitsForOtherTurn(ctx context.Context, req request.Request) bool {
	if req.OnBusy == request.Reject {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	s, err := a.Decider.Memory.GetSession(ctx, req.Ref)
	return err == nil && s.OpenTurn != ""
}

// maxChildrenOfLocalTurn returns how many children the turn of a trace may have at once. runs is false if this
// orchestrator does not drive the turn.
func (a *Admitter) maxChildrenOfLocalTurn(parent trace.Ref) (fanOut int64, runs bool) {
	if parent.Trace == "" {
		return 0, false
	}
	turn := a.Active.FindByTrace(parent)
	if turn == nil {
		return 0, false
	}
	return turn.MaxChildren, true
}

// maxChildrenOfRemoteTurn returns how many children the turn of a trace may have at once. It reads the trace that
// another orchestrator stores; runs is false if the turn does not run.
func (a *Admitter) maxChildrenOfRemoteTurn(ctx context.Context, parent trace.Ref) (fanOut int64, runs bool) {
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
	return request.LabelsFromTrace(found).AllowanceOrDefault(flow.Budget).Limits.FanOut, true
}
