// Package stepserver implements AgentService for one agent. It admits a step, renews the lease of its turn,
// streams its events, and sends its result. Package steprun runs the step.
package stepserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/loop/guard"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/recorder"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/summary"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/internal/turnlease"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/worker/steprun"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// Server implements AgentService for one agent.
type Server struct {
	troupev1.UnimplementedAgentServiceServer
	log         *zap.Logger
	audit       *audit.Log
	agent       string
	instance    *lifecycle.Instance
	store       steprun.Store
	runner      *steprun.Runner
	running     *runningSteps
	entries     entryRequests
	fencedSteps metric.Int64Counter

	violations *telemetry.Violations
	panics     *telemetry.Panics
}

// New returns a server that runs the steps of agent a on an instance. id is the instance id.
func New(t *telemetry.Telemetry, a *agent.Agent, instance *lifecycle.Instance, id string, turns steprun.Store) (*Server, error) {
	fenced, err := t.Metrics.Meter("troupe/worker").Int64Counter("troupe.worker.fenced",
		metric.WithDescription("Steps that ended because a successor had their turn."))
	if err != nil {
		return nil, err
	}
	violations, err := t.Violations()
	return &Server{
		log: t.Log, audit: t.Audit, agent: a.Name(), instance: instance, store: turns, runner: steprun.New(a, id, turns),
		running: newRunningSteps(), entries: entryRequests{waiting: map[string]chan *troupev1.ProvideEntriesRequest{}},
		fencedSteps: fenced, violations: violations, panics: t.Panics,
	}, err
}

// ExecuteStep implements troupev1.AgentServiceServer.
func (s *Server) ExecuteStep(req *troupev1.ExecuteStepRequest, stream troupev1.AgentService_ExecuteStepServer) error {
	if req.GetAgent() != s.agent {
		// The caller is not at fault: it has an outdated view of the registry, and another instance can take the
		// step.
		return failure.Newf(failure.AgentState, "agent.ExecuteStep", "agent: this worker hosts %q, not %q", s.agent, req.GetAgent())
	}
	ctx, stop := context.WithCancelCause(lifecycle.ContextWithCause(rpc.WithRun(takeCredential(stream.Context(), req), req.GetRootTraceId()), req.GetTraceId(),
		identity.PrincipalFromContext(stream.Context()).String()))
	defer stop(nil)
	remove, err := s.running.add(req, stop)
	if err != nil {
		return err
	}
	defer remove()
	ctx, end, err := s.instance.Admit(ctx)
	if err != nil {
		return err
	}
	failed := errUnfinished
	defer func() { end(failed) }()
	if err := stream.SendHeader(nil); err != nil { // the headers tell the caller that the step was admitted
		return err
	}

	out := &stepStream{stream: stream, lastSent: time.Now()}
	result, err := s.runStep(ctx, stop, req, out)
	if err != nil {
		if failure.Is(err, failure.Fenced) {
			s.fencedSteps.Add(ctx, 1)
		}
		s.panics.Record(ctx, err)
		s.log.Warn("step failed", zap.String("trace", req.GetTraceId()), zap.String("root_trace_id", req.GetRootTraceId()),
			zap.Int32("step", req.GetStep()), zap.Error(err))
		result = &troupev1.StepResult{Step: req.GetStep(), Agent: req.GetAgent(), Failure: grpcfailure.ToProto(err), Used: result.GetUsed()}
	}
	failed = err
	return out.send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: result}})
}

// ReplayStep implements troupev1.AgentServiceServer.
func (s *Server) ReplayStep(ctx context.Context, req *troupev1.ReplayStepRequest) (_ *troupev1.ReplayStepResponse, err error) {
	asked := req.GetStep()
	if asked.GetAgent() != s.agent {
		return nil, failure.Newf(failure.AgentState, "agent.ReplayStep", "agent: this worker hosts %q, not %q", s.agent, asked.GetAgent())
	}
	ctx, end, err := s.instance.Admit(lifecycle.ContextWithCause(takeCredential(ctx, asked), asked.GetTraceId(), identity.PrincipalFromContext(ctx).String()))
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	replayed, err := s.runner.Replay(ctx, req)
	if err != nil {
		return nil, err
	}
	return &troupev1.ReplayStepResponse{Replay: replayed}, nil
}

// Summarize implements troupev1.AgentServiceServer. It takes a slot of the instance, as a step does.
func (s *Server) Summarize(ctx context.Context, req *troupev1.SummarizeRequest) (_ *troupev1.SummarizeResponse, err error) {
	if req.GetAgent() != s.agent {
		return nil, failure.Newf(failure.AgentState, "agent.Summarize", "agent: this worker hosts %q, not %q", s.agent, req.GetAgent())
	}
	ctx, end, err := s.instance.Admit(lifecycle.ContextWithCause(ctx, "", identity.PrincipalFromContext(ctx).String()))
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	text, used, err := summary.Write(ctx, s.runner.Agent().LLM(), wire.MessagesFromProto(req.GetMessages()), memory.MaxSummaryBytes)
	if err != nil {
		return nil, err
	}
	return &troupev1.SummarizeResponse{Summary: text, Usage: wire.UsageToProto(used)}, nil
}

// takeCredential removes the credential of the step from the request, so that no other code can use it. It returns
// a context whose calls to the memory service carry the credential.
func takeCredential(ctx context.Context, req *troupev1.ExecuteStepRequest) context.Context {
	ctx = turnctx.WithCredential(ctx, req.GetCredential())
	req.Credential = ""
	return ctx
}

// errUnfinished is recorded for a step that ends without a result or an error.
var errUnfinished = errors.New("the step did not finish")

// runStep runs a step, sends heartbeats and renews the lease of the turn. It returns after all goroutines of the
// step have ended.
func (s *Server) runStep(ctx context.Context, stop context.CancelCauseFunc, req *troupev1.ExecuteStepRequest, out *stepStream) (*troupev1.StepResult, error) {
	var background sync.WaitGroup
	defer background.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	hold := memory.Lease{Ref: steprun.SessionRef(req), TurnID: req.GetTurnId(), Epoch: req.GetEpoch()}
	background.Go(func() { panics.Guard("agent.ExecuteStep", stop, func() { out.sendHeartbeats(ctx) }) })
	background.Go(func() {
		panics.Guard("agent.ExecuteStep", stop, func() { turnlease.Renew(ctx, s.store, hold, leaseTTL, stop) })
	})

	journal, err := recorder.New(ctx, stop, s.store, hold, int(req.GetStep()), req.GetAttempt() > 1)
	if err != nil {
		return nil, failure.FromCause(ctx, err)
	}
	defer func() { end(); journal.Wait() }()
	if req.GetRecorded() {
		if g := steprun.EncodeInput(req); g != nil {
			journal.Record(execution.Entry{Phase: execution.Intent, StepInput: g, Late: true})
		}
	}
	rejected := s.newViolationReporter(req, out)
	var earlier steprun.ReadEntries
	if req.GetProvidesEntries() {
		earlier = func(ctx context.Context, limit int) ([]event.Event, error) { return s.entries.ask(ctx, out, limit) }
	}
	result, err := s.runner.Run(ctx, req, journal, earlier, func(e event.Event) error {
		s.auditBlockedCall(req, e)
		rejected.recordViolationEvent(ctx, e)
		shown := wire.EventToProto(e)
		if shown == nil {
			return nil
		}
		return out.send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: shown}})
	})
	rejected.publishStepError(ctx, err)
	return result, err
}

// auditBlockedCall records in the audit log that a tool call was blocked, or needs an approval, because the turn
// has read untrusted content (guarantee S14). The record does not contain that content.
func (s *Server) auditBlockedCall(req *troupev1.ExecuteStepRequest, e event.Event) {
	w, ok := e.Payload.(event.Warning)
	if !ok || w.Reason != guard.ReasonUntrustedInput {
		return
	}
	s.audit.Record(audit.Entry{
		Kind: audit.Denied, Actor: s.agent, Action: "tool " + w.Tool, Object: req.GetSessionId(), Result: string(failure.PolicySecurity),
		Facts: map[string]string{"trace": req.GetTraceId(), "turn": req.GetTurnId(), "agent": e.Author, "guard": w.Reason},
	})
}
