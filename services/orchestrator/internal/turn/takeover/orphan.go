package takeover

import (
	"context"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/assignment"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/compact"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/run"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// TakeOver continues or ends an orphaned trace. If it fails, a later heartbeat of this or another orchestrator
// offers the trace again.
func (r *Reconciler) TakeOver(ctx context.Context, ref trace.Ref) {
	if !r.Drain.Enter() {
		return
	}
	defer r.Drain.Leave()
	if r.Active.FindByTrace(ref) != nil {
		return
	}
	done, err := r.takeOverOrEnd(ctx, ref)
	switch {
	case err != nil:
		r.Telemetry.Panics.Record(ctx, err)
		r.log.Warn("orphaned trace not taken over", zap.String("trace", ref.Trace), zap.Error(err))
	case done:
		r.takeovers.Add(ctx, 1)
	}
}

// takeOverOrEnd returns false when nothing needs to be done, or another orchestrator was faster.
//
// A trace that panics here would crash every orchestrator that finds it. The function therefore turns the panic
// into an error and leaves no lock held.
func (r *Reconciler) takeOverOrEnd(ctx context.Context, ref trace.Ref) (done bool, err error) {
	defer panics.Recover("turn.takeover", &err)
	found, err := r.Traces.Store().Load(ctx, ref)
	if failure.Is(err, failure.NotFound) || err == nil && found.Record.GetState() == troupev1.TraceState_TRACE_STATE_ENDED {
		r.Traces.RemoveEnded(ref)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() {
		if done && err == nil {
			r.log.Info("orphaned trace taken over", zap.String("trace", ref.Trace), zap.String("root_trace_id", found.Record.GetRootTraceId()))
		}
	}()
	decided, req := r.restoreRequest(ref, found)
	within, cancel := context.WithTimeout(ctx, trace.LeaseTime) // no other orchestrator is offered the trace during this time
	defer cancel()
	known, state, err := r.Decider.LookUpTurn(within, decided.Begin)
	if failure.Is(err, failure.SessionDeleted) {
		state = decide.Absent
	}
	switch decide.FindCase(decide.Orphan, state, false) {
	case decide.EndVanishedTurn:
		return true, r.endVanishedTurn(within, req, found, err)
	case decide.EndClosedTurn:
		return true, r.Closer.EndTrace(within, req, decided.Begin.Fingerprint, known.Turn)
	case decide.TakeOver:
		if decided.TargetErr != nil && found.TimeLeft > 0 {
			return false, decided.TargetErr // another orchestrator may know its target
		}
		return r.takeOverTurn(ctx, within, req, decided, found, known)
	default:
		return false, err
	}
}

// takeOverTurn takes over the turn of a trace, and starts driving it.
//
// The memory service decides who gets the turn. First, takeOverTurn releases the lease of the lost owner under
// that owner's epoch. This fails if another orchestrator already has the turn. The orchestrator that then begins
// the turn gets a higher epoch. From then on the former owner can write nothing, even if it is still alive. The
// trace belongs to the orchestrator with the highest epoch.
func (r *Reconciler) takeOverTurn(
	ctx, within context.Context, req request.Request, decided decide.Admission, found trace.RunningTrace, known memory.BeginResult,
) (bool, error) {
	begun, err := r.claimTurn(within, decided.Begin, known)
	if err != nil || begun.Status != memory.StatusBegun {
		return false, err
	}
	req.Files = admit.StoredAttachments(begun)
	rerun := r.Decider.FailedSteps(within, req)
	permit, started := r.Permits.ForceAdmit(req.Tenant), false // an admitted turn does not wait for a permit again
	defer func() {
		if !started {
			permit.Release(false)
		}
	}()
	err = r.Driver.Start(context.WithoutCancel(ctx), run.BegunTurn{
		Request: req, Begin: decided.Begin, Turn: begun.Turn, Target: decided.Target, Flow: decided.Flow,
		Conversation: assignment.Conversation{History: begun.History, LastSequence: begun.Turn.Sequence, Agents: begun.Agents},
		Rerun:        rerun, KeepsJournals: begun.KeepsJournals, Permit: permit,
		Began: found.Record.GetStarted().AsTime(), Timeout: found.Turn.Timeout, TimeLeft: found.TimeLeft,
		Takeover: takeoverFromTrace(found), Growth: compact.NewGrowth(begun),
	})
	started = err == nil
	return started, err
}

// takeoverFromTrace returns what the trace contains about the turn in addition to its request.
func takeoverFromTrace(found trace.RunningTrace) *run.Takeover {
	t := &run.Takeover{CredentialsLost: found.Turn.HasCredentials}
	if owners := found.Record.GetOwnerEpoch(); owners >= MaxOwners {
		t.AbandonErr = failure.Newf(failure.AttemptsExhausted, "turn", "%d orchestrators were lost while they drove the turn", owners)
	}
	if found.StopRequested {
		t.StopErr = active.NewCancelledError(found.StopReason)
	}
	return t
}

// restoreRequest restores the request of a lost owner from the record of its trace.
func (r *Reconciler) restoreRequest(ref trace.Ref, found trace.RunningTrace) (decide.Admission, request.Request) {
	record := found.Record
	req := request.Request{
		Ref: session.Ref{Tenant: ref.Tenant, Session: record.GetSessionId()}, User: found.Turn.User, RequestID: record.GetRequestId(),
		Text: record.GetText(), Target: record.GetTarget(), Parent: record.GetParent(), ParentTrace: found.Turn.Parent,
		Labels: request.LabelsFromTrace(found), Source: request.SourceFromProto(record.GetForkedFrom()),
	}
	decided := r.Decider.WithTarget(memory.Begin{
		Ref: req.Ref, User: req.User, TurnID: record.GetTurnId(), TraceID: decide.NewTraceID(), Fingerprint: found.Turn.Fingerprint,
		LeaseTTL: lease.Duration,
	}, record.GetTarget())
	if decided.TargetErr != nil {
		decided.Flow, decided.Target = workflow.SingleAgent(record.GetTarget()), record.GetTarget()
	}
	return decided, req
}

// claimTurn begins a turn whose lease another orchestrator may still hold. It begins nothing if the turn changes
// its owner meanwhile.
func (r *Reconciler) claimTurn(ctx context.Context, begin memory.Begin, known memory.BeginResult) (memory.BeginResult, error) {
	if known.LeaseLeft > 0 {
		err := lease.New(r.Memory, begin, known.Turn.Epoch, 0).Release(ctx)
		if failure.Is(err, failure.Fenced, failure.TurnNotOpen) {
			return memory.BeginResult{}, nil
		}
		if err != nil {
			return memory.BeginResult{}, err
		}
	}
	return r.Decider.BeginTurn(ctx, begin)
}

// endVanishedTurn ends the trace of a turn that no longer exists.
func (r *Reconciler) endVanishedTurn(ctx context.Context, req request.Request, found trace.RunningTrace, why error) error {
	record := found.Record
	return r.Closer.EndTrace(ctx, req, found.Turn.Fingerprint, session.Turn{
		ID: record.GetTurnId(), Trace: record.GetTraceId(), Number: int(record.GetTurn()),
		Outcome: session.OutcomeFailed, Failure: grpcfailure.FromProto(grpcfailure.ToProto(why)),
	})
}
