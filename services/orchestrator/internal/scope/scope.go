// Package scope keeps workers that call the orchestrator to what their turn may ask for: turns of
// remote agents below it, and their traces (guarantees 4.2, S5).
package scope

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/identity"
	"github.com/troupe-dev/troupe/pkg/identity/turncred"
	"github.com/troupe-dev/troupe/pkg/rpc"
	"github.com/troupe-dev/troupe/pkg/wire"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Find returns the record of a trace. Modes: not_found.
type Find func(ctx context.Context, ref trace.Ref) (*troupev1.Trace, error)

// New returns the scope of the calls of an orchestrator. Others than workers are not looked at:
// what they may touch is decided by their tenants.
//
// Modes: policy_security without the credential of a turn, or for what no turn may ask; not_found for
// sessions and traces that are neither of the turn nor below it, whether they exist or not.
func New(a *turncred.Authority, find Find) rpc.Scope {
	return func(ctx context.Context, method string, req any) (context.Context, error) {
		if identity.PrincipalOf(ctx).Role != identity.Worker || !strings.HasPrefix(method, "/troupe.v1.") {
			return ctx, nil
		}
		turn, ok, err := a.Of(ctx)
		if err != nil {
			return nil, err
		}
		if !ok || turn.Replay {
			return nil, failure.New(failure.PolicySecurity, "call", "a worker may call this within a turn alone")
		}
		switch r := req.(type) {
		case *troupev1.OrchestrateRequest:
			return ctx, below(ctx, turn, r, find)
		case *troupev1.WatchTraceRequest:
			return ctx, seen(ctx, turn, r.GetTraceId(), find)
		case *troupev1.GetTraceRequest:
			return ctx, seen(ctx, turn, r.GetTraceId(), find)
		case *troupev1.CancelTraceRequest:
			return ctx, seen(ctx, turn, r.GetTraceId(), find)
		default:
			return nil, failure.Newf(failure.PolicySecurity, "call", "no turn may call %s", method)
		}
	}
}

// below says why a turn may not ask for another: that has to be one below it, of the same user, in a
// session of its own, at the place and within the budget that the credential tells. What the worker
// says of them is worth nothing: it could ask for turns of its own without an end.
func below(ctx context.Context, turn turncred.Turn, r *troupev1.OrchestrateRequest, find Find) error {
	const op = "turn.Orchestrate"
	refuse := func(field, what string) error {
		return failure.New(failure.PolicySecurity, op, field+": "+what).With("fields", field)
	}
	switch {
	case r.GetParent().GetTraceId() != turn.Trace:
		return refuse("parent", "a turn may ask for others below itself alone; name its trace there")
	case wire.AboveOf(ctx) != "" && wire.AboveOf(ctx) != turn.Trace:
		return refuse("troupe-trace-above", "a turn may name itself alone")
	case r.GetUserId() != turn.User:
		return refuse("user_id", "a turn acts for its own user alone")
	case r.GetSessionId() == turn.Session || !turn.Owns(r.GetSessionId()):
		return failure.Newf(failure.NotFound, op, "session_id: a turn has no session %q below it", r.GetSessionId()).With("session_id", r.GetSessionId())
	case cmp.Or(r.GetParent().GetRootTraceId(), r.GetParent().GetTraceId()) != turn.Root:
		return refuse("parent.root_trace_id", "a turn asks for others in its own run alone")
	case int(r.GetParent().GetDepth()) != turn.Level+1:
		return refuse("parent.depth", fmt.Sprintf("a turn below one at depth %d lies at %d", turn.Level, turn.Level+1))
	case r.GetTarget() == turn.Agent:
		return refuse("target", "no agent asks itself; ask another one")
	}
	if k, over := beyond(wire.LimitsFromProto(r.GetBudget()), turn.Budget); over {
		return refuse("budget", fmt.Sprintf("%s: no more than the step above may use", k))
	}
	if err := open(ctx, turn, find); err != nil || r.GetFrom() == nil {
		return err
	}
	return seen(ctx, turn, r.GetFrom().GetTraceId(), find)
}

// beyond reports in what a budget is more than that of the step that asks. How many turns the one
// below may begin is its own; and a step that is only warned bounds nothing but depth.
func beyond(asked, above budget.Limits) (budget.Kind, bool) {
	kinds := []budget.Kind{budget.Depth}
	if above.Policy != budget.Warn {
		kinds = append(kinds, budget.Kinds()...)
	}
	for _, k := range kinds {
		if k != budget.FanOut && asked.Of(k) > above.Of(k) {
			return k, true
		}
	}
	return "policy", asked.Policy == budget.Warn && above.Policy != budget.Warn
}

// open says why nothing can be asked for below a turn: it has ended. One whose record is not there
// yet has just begun.
func open(ctx context.Context, turn turncred.Turn, find Find) error {
	record, err := find(ctx, trace.Ref{Tenant: turn.Tenant, Trace: turn.Trace})
	if err != nil && !failure.Is(err, failure.NotFound) {
		return err
	}
	if record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED {
		return failure.New(failure.TurnNotOpen, "turn.Orchestrate", "the turn that asks has ended; stop this work").With("trace_id", turn.Trace)
	}
	return nil
}

// seen says why a turn may not see a trace. It may see its own, and those of the sessions below it.
func seen(ctx context.Context, turn turncred.Turn, traceID string, find Find) error {
	if traceID == turn.Trace {
		return nil
	}
	record, err := find(ctx, trace.Ref{Tenant: turn.Tenant, Trace: traceID})
	if err != nil && !failure.Is(err, failure.NotFound) {
		return err
	}
	if err != nil || record.GetSessionId() == turn.Session || !turn.Owns(record.GetSessionId()) {
		return failure.Newf(failure.NotFound, "trace.Get", "trace_id: no trace %s is known; traces are kept for a while after they end", traceID)
	}
	return nil
}
