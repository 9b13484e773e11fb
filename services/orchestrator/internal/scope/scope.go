// Package scope keeps workers that call the orchestrator to what their turn may ask for: turns of
// remote agents below it, and their traces (guarantees 4.2, S5), while their step has not ended (S6).
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

// FindTrace returns the record of a trace. Modes: not_found.
type FindTrace func(ctx context.Context, ref trace.Ref) (*troupev1.Trace, error)

// TraceStatus tells how the trace of a turn stands to who has one of its steps.
type TraceStatus func(ctx context.Context, ref trace.Ref, step int) (trace.Status, error)

// New returns the scope of the calls of an orchestrator. Others than workers are not looked at:
// what they may touch is decided by their tenants.
//
// Modes: policy_security without the credential of a turn, or for what no turn may ask; not_found for
// sessions and traces that are neither of the turn nor below it, whether they exist or not; fenced when
// the turn was given to another worker, turn_not_open when the step has ended.
func New(a *turncred.Authority, find FindTrace, stands TraceStatus) rpc.Scope {
	s := scope{find, stands}
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
			return ctx, s.checkChild(ctx, turn, r)
		case *troupev1.WatchTraceRequest:
			return ctx, s.checkRead(ctx, turn, r.GetTraceId())
		case *troupev1.GetTraceRequest:
			return ctx, s.checkRead(ctx, turn, r.GetTraceId())
		case *troupev1.CancelTraceRequest:
			return ctx, s.checkCancel(ctx, turn, r.GetTraceId())
		default:
			return nil, failure.Newf(failure.PolicySecurity, "call", "no turn may call %s", method)
		}
	}
}

// scope is what is known of traces.
type scope struct {
	find   FindTrace
	status TraceStatus
}

// checkChild says why a turn may not ask for another: that has to be one below it, of the same user, in a
// session of its own, at the place and within the budget that the credential tells. What the worker
// says of them is worth nothing: it could ask for turns of its own without an end.
func (s scope) checkChild(ctx context.Context, turn turncred.Turn, r *troupev1.OrchestrateRequest) error {
	const op = "turn.Orchestrate"
	refuse := func(field, what string) error {
		return failure.New(failure.PolicySecurity, op, field+": "+what).With("fields", field)
	}
	switch {
	case r.GetParent().GetTraceId() != turn.Trace:
		return refuse("parent", "a turn may ask for others below itself alone; name its trace there")
	case turncred.ParentTrace(ctx) != "" && turncred.ParentTrace(ctx) != turn.Trace:
		return refuse("troupe-trace-above", "a turn may name itself alone")
	case r.GetAnswers() != nil: // it would approve what it had another agent ask for
		return refuse("answers", "calls that wait for a person or a client are answered by clients, and by no agent")
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
	if k, over := exceeded(wire.LimitsFromProto(r.GetBudget()), turn.Budget); over {
		return refuse("budget", fmt.Sprintf("%s: no more than the step above may use", k))
	}
	standing, err := s.currentStatus(ctx, turn)
	switch {
	case err != nil:
		return err
	case standing.Ended:
		return failure.New(failure.TurnNotOpen, op, "the turn that asks has ended; stop this work").With("trace_id", turn.Trace)
	case r.GetFrom() == nil:
		return nil
	}
	return s.checkOwned(ctx, turn, r.GetFrom().GetTraceId())
}

// exceeded reports in which kind a budget exceeds the budget of the calling step. The fan-out of a child is its own,
// and a step with the policy warn limits only depth.
func exceeded(asked, above budget.Limits) (budget.Kind, bool) {
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

// currentStatus is how the trace of a turn stands. It fails with why the worker that calls has nothing to ask
// for any more: another has the turn, or its step has ended. A trace whose record is not there yet has just begun.
func (s scope) currentStatus(ctx context.Context, turn turncred.Turn) (trace.Status, error) {
	standing, err := s.status(ctx, trace.Ref{Tenant: turn.Tenant, Trace: turn.Trace}, turn.Step)
	switch {
	case err != nil:
		return standing, err
	case standing.TurnEpoch > turn.Epoch:
		return standing, failure.Newf(failure.Fenced, "call", "epoch %d of the turn has ended: another worker has it at epoch %d; stop this work", turn.Epoch, standing.TurnEpoch).
			With("epoch", strconv.FormatInt(turn.Epoch, 10)).With("current_epoch", strconv.FormatInt(standing.TurnEpoch, 10))
	case standing.StepEnded:
		return standing, failure.Newf(failure.TurnNotOpen, "call", "step %d of the turn has ended, and asks for nothing more; stop this work", turn.Step).
			With("step", strconv.Itoa(turn.Step))
	}
	return standing, nil
}

// checkRead says why the worker that calls may not see a trace, or end it.
func (s scope) checkRead(ctx context.Context, turn turncred.Turn, traceID string) error {
	if _, err := s.currentStatus(ctx, turn); err != nil {
		return err
	}
	return s.checkOwned(ctx, turn, traceID)
}

// checkCancel says why the worker that calls may not end a trace. What its step had set going it may end when that
// is over too: a step that ran out of time leaves nothing behind, and nobody else knows of it.
func (s scope) checkCancel(ctx context.Context, turn turncred.Turn, traceID string) error {
	_, err := s.currentStatus(ctx, turn)
	if err != nil && (traceID == turn.Trace || !failure.Is(err, failure.TurnNotOpen)) {
		return err
	}
	return s.checkOwned(ctx, turn, traceID)
}

// checkOwned says why a turn may not see a trace. It may see its own, and those of the sessions below it.
func (s scope) checkOwned(ctx context.Context, turn turncred.Turn, traceID string) error {
	if traceID == turn.Trace {
		return nil
	}
	record, err := s.find(ctx, trace.Ref{Tenant: turn.Tenant, Trace: traceID})
	if err != nil && !failure.Is(err, failure.NotFound) {
		return err
	}
	if err != nil || record.GetSessionId() == turn.Session || !turn.Owns(record.GetSessionId()) {
		return failure.Newf(failure.NotFound, "trace.Get", "trace_id: no trace %s is known; traces are kept for a while after they end", traceID)
	}
	return nil
}
