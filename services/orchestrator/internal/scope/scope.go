// Package scope restricts the calls that workers make to the orchestrator. While its step runs (guarantee S6), a worker may
// request child turns of its turn and read their traces (guarantees 4.2, S5).
package scope

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// FindTrace is a function that returns the record of a trace. Modes: not_found.
type FindTrace func(ctx context.Context, ref trace.Ref) (*troupev1.Trace, error)

// TraceStatus is a function that returns the status of a trace and of one of its steps.
type TraceStatus func(ctx context.Context, ref trace.Ref, step int) (trace.Status, error)

// New returns the authorization check for all calls to an orchestrator. It does not restrict callers of other
// roles, which are limited to their tenant.
//
// Modes: policy_security without the credential of a turn, or for a request that no turn may make; not_found for
// sessions and traces outside the turn and its children, whether they exist or not; fenced when another worker has
// the turn; turn_not_open when the step has ended.
func New(a *turncred.Authority, find FindTrace, status TraceStatus) rpc.ScopeChecker {
	s := scope{find, status}
	return func(ctx context.Context, method string, req any) (context.Context, error) {
		if identity.PrincipalFromContext(ctx).Role != identity.Worker || !strings.HasPrefix(method, "/troupe.v1.") {
			return ctx, nil
		}
		turn, ok, err := a.TurnFromContext(ctx)
		if err != nil {
			return nil, err
		}
		if !ok || turn.Replay {
			return nil, failure.New(failure.PolicySecurity, "call", "a worker may call this only within a turn; send the credential of the step with the call")
		}
		switch r := req.(type) {
		case *troupev1.OrchestrateRequest:
			return ctx, s.checkChild(ctx, turn, r)
		case *troupev1.WatchTraceRequest:
			return ctx, s.checkRead(ctx, turn, r.GetTraceId())
		case *troupev1.GetTraceRequest:
			return ctx, s.checkRead(ctx, turn, r.GetTraceId())
		case *troupev1.CancelTraceRequest:
			return ctx, s.checkCancel(ctx, turn, r.GetTraceId())
		default:
			return nil, failure.Newf(failure.PolicySecurity, "call", "a turn may not call %s", method)
		}
	}
}

// scope looks traces up.
type scope struct {
	find   FindTrace
	status TraceStatus
}

// checkChild rejects a child turn unless it belongs to the same user and has a child session of the turn. Its
// parent, depth and budget must be those that the credential of the turn prescribes. The check does not trust the
// worker's own values, because a worker could otherwise request an unlimited number of turns.
func (s scope) checkChild(ctx context.Context, turn turncred.Turn, r *troupev1.OrchestrateRequest) error {
	const op = "turn.Orchestrate"
	refuse := func(field, what string) error {
		return failure.New(failure.PolicySecurity, op, field+": "+what).With("fields", field)
	}
	switch {
	case r.GetParent().GetTraceId() != turn.Trace:
		return refuse("parent", "a turn may request only its own children; name its trace here")
	case turncred.ParentTraceFromContext(ctx) != "" && turncred.ParentTraceFromContext(ctx) != turn.Trace:
		return refuse("troupe-parent-trace", "a turn may name only its own trace")
	case r.GetAnswers() != nil: // a worker could approve a call that another agent made on its behalf
		return refuse("answers", "an agent may not answer calls that wait for a person or a client")
	case r.GetUserId() != turn.User:
		return refuse("user_id", "a turn acts only for its own user")
	case r.GetSessionId() == turn.Session || !turn.MayAccess(r.GetSessionId()):
		return failure.Newf(failure.NotFound, op, "session_id: the turn has no child session %q", r.GetSessionId()).With("session_id", r.GetSessionId())
	case cmp.Or(r.GetParent().GetRootTraceId(), r.GetParent().GetTraceId()) != turn.Root:
		return refuse("parent.root_trace_id", "a turn may request turns only in its own run")
	case int(r.GetParent().GetDepth()) != turn.Level+1:
		return refuse("parent.depth", fmt.Sprintf("a child of a turn at depth %d has depth %d", turn.Level, turn.Level+1))
	case r.GetTarget() == turn.Agent:
		return refuse("target", "an agent may not request itself; name another one")
	}
	if k, over := exceededKind(wire.LimitsFromProto(r.GetBudget()), turn.Budget); over {
		return refuse("budget", fmt.Sprintf("%s: the step that requests the turn may not use as much", k))
	}
	status, err := s.currentStatus(ctx, turn)
	switch {
	case err != nil:
		return err
	case status.Ended:
		return failure.New(failure.TurnNotOpen, op, "the requesting turn has ended; stop this work").With("trace_id", turn.Trace)
	case r.GetFrom() == nil:
		return nil
	}
	return s.checkBelongsToTurn(ctx, turn, r.GetFrom().GetTraceId())
}

// exceededKind returns the first budget kind in which a child's budget exceeds the budget of the calling step. The
// fan-out of the child is independent of the step's. A step with the policy warn limits only depth.
func exceededKind(asked, stepBudget budget.Limits) (budget.Kind, bool) {
	kinds := []budget.Kind{budget.Depth}
	if stepBudget.Policy != budget.Warn {
		kinds = append(kinds, budget.Kinds()...)
	}
	for _, k := range kinds {
		if k != budget.FanOut && asked.Get(k) > stepBudget.Get(k) {
			return k, true
		}
	}
	return "policy", asked.Policy == budget.Warn && stepBudget.Policy != budget.Warn
}

// currentStatus returns the status of the trace of a turn. It fails when the calling worker may request nothing
// more, because another worker has the turn or the step has ended. A trace without a stored record has just begun.
func (s scope) currentStatus(ctx context.Context, turn turncred.Turn) (trace.Status, error) {
	status, err := s.status(ctx, trace.Ref{Tenant: turn.Tenant, Trace: turn.Trace}, turn.Step)
	switch {
	case err != nil:
		return status, err
	case status.TurnEpoch > turn.Epoch:
		return status, failure.Newf(failure.Fenced, "call", "epoch %d of the turn has ended: another worker has it at epoch %d; stop this work",
			turn.Epoch, status.TurnEpoch).
			With("epoch", strconv.FormatInt(turn.Epoch, 10)).With("current_epoch", strconv.FormatInt(status.TurnEpoch, 10))
	case status.StepEnded:
		return status, failure.Newf(failure.TurnNotOpen, "call", "step %d of the turn has ended and may request nothing more; stop this work", turn.Step).
			With("step", strconv.Itoa(turn.Step))
	}
	return status, nil
}

// checkRead rejects a trace that the calling worker may not read.
func (s scope) checkRead(ctx context.Context, turn turncred.Turn, traceID string) error {
	if _, err := s.currentStatus(ctx, turn); err != nil {
		return err
	}
	return s.checkBelongsToTurn(ctx, turn, traceID)
}

// checkCancel rejects a trace that the calling worker may not cancel. A worker may cancel the turns that its step
// requested even after the step has ended, because only this worker knows about them.
func (s scope) checkCancel(ctx context.Context, turn turncred.Turn, traceID string) error {
	_, err := s.currentStatus(ctx, turn)
	if err != nil && (traceID == turn.Trace || !failure.Is(err, failure.TurnNotOpen)) {
		return err
	}
	return s.checkBelongsToTurn(ctx, turn, traceID)
}

// checkBelongsToTurn rejects a trace that belongs neither to the turn nor to a child session of it.
func (s scope) checkBelongsToTurn(ctx context.Context, turn turncred.Turn, traceID string) error {
	if traceID == turn.Trace {
		return nil
	}
	record, err := s.find(ctx, trace.Ref{Tenant: turn.Tenant, Trace: traceID})
	if err != nil && !failure.Is(err, failure.NotFound) {
		return err
	}
	if err != nil || record.GetSessionId() == turn.Session || !turn.MayAccess(record.GetSessionId()) {
		return failure.Newf(failure.NotFound, "trace.Get", "trace_id: no trace %s is known; traces are kept for a while after they end", traceID)
	}
	return nil
}
