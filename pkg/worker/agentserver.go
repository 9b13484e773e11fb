package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/session"
)

// agentServer runs steps.
type agentServer struct {
	troupev1.UnimplementedAgentServiceServer
	log      *zap.Logger
	audit    *audit.Log
	agent    *agent.Agent
	instance *lifecycle.Instance
	turns    turns
	running  *running
	broker   *broker.Broker
	fenced   metric.Int64Counter

	violations *telemetry.Violations
	panics     *telemetry.Panics
}

// newAgentServer returns the server of an agent's steps, on the instance of an id.
func newAgentServer(t *telemetry.Telemetry, a *agent.Agent, instance *lifecycle.Instance, id string, turns turns) (*agentServer, error) {
	fenced, err := t.Metrics.Meter("troupe/worker").Int64Counter("troupe.worker.fenced",
		metric.WithDescription("Steps that ended because a successor had their turn."))
	if err != nil {
		return nil, err
	}
	violations, err := t.Violations()
	return &agentServer{violations: violations, panics: t.Panics, log: t.Log, audit: t.Audit, agent: a, instance: instance, turns: turns, running: newRunning(), broker: broker.New(id), fenced: fenced}, err
}

// turns is what a step needs of the MEMORY tier.
type turns interface {
	memory.Turns
	memory.Journal
	agent.Tier
}

// ExecuteStep implements troupev1.AgentServiceServer.
func (s *agentServer) ExecuteStep(req *troupev1.ExecuteStepRequest, stream troupev1.AgentService_ExecuteStepServer) error {
	if req.GetAgent() != s.agent.Name() {
		// Not the caller's fault: its view of the registry is behind, and another instance may take the step.
		return failure.Newf(failure.AgentState, "agent.ExecuteStep", "agent: this worker hosts %q, not %q", s.agent.Name(), req.GetAgent())
	}
	ctx, stop := context.WithCancelCause(lifecycle.Traced(rpc.InRun(credited(stream.Context(), req), req.GetRootTraceId()), req.GetTraceId()))
	defer stop(nil)
	leave, err := s.running.enter(req, stop)
	if err != nil {
		return err
	}
	defer leave()
	ctx, end, err := s.instance.Admit(ctx)
	if err != nil {
		return err
	}
	failed := errUnfinished
	defer func() { end(failed) }()
	if err := stream.SendHeader(nil); err != nil { // tells the caller that the step is admitted
		return err
	}

	out := &sender{stream: stream, sent: time.Now()}
	result, err := s.hold(ctx, stop, req, out)
	if err != nil {
		if failure.Is(err, failure.Fenced) {
			s.fenced.Add(ctx, 1)
		}
		s.panics.Note(ctx, err)
		s.log.Warn("step failed", zap.String("trace", req.GetTraceId()), zap.String("root_trace_id", req.GetRootTraceId()), zap.Int32("step", req.GetStep()), zap.Error(err))
		result = &troupev1.StepResult{Step: req.GetStep(), Agent: req.GetAgent(), Failure: grpcfailure.ToProto(err), Used: result.GetUsed()}
	}
	failed = err
	return out.send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: result}})
}

// credited is the context of a step whose calls to the memory service show its credential, which
// is nowhere else from here on.
func credited(ctx context.Context, req *troupev1.ExecuteStepRequest) context.Context {
	ctx = turnctx.WithCredential(ctx, req.GetCredential())
	req.Credential = ""
	return ctx
}

// refOf is the session of a step.
func refOf(req *troupev1.ExecuteStepRequest) session.Ref {
	return session.Ref{Tenant: req.GetTenant(), Session: req.GetSessionId()}
}

// errUnfinished is the failure of a step that ends without any other.
var errUnfinished = errors.New("the step did not end")

// hold runs a step while it shows that it is at work and keeps the lease of the turn, and
// returns when nothing of it runs any more.
func (s *agentServer) hold(ctx context.Context, stop context.CancelCauseFunc, req *troupev1.ExecuteStepRequest, out *sender) (*troupev1.StepResult, error) {
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	hold := memory.Hold{Ref: refOf(req), TurnID: req.GetTurnId(), Epoch: req.GetEpoch()}
	beside.Go(func() { panics.Guard("agent.ExecuteStep", stop, func() { out.heartbeats(ctx) }) })
	beside.Go(func() {
		panics.Guard("agent.ExecuteStep", stop, func() { memory.Keep(ctx, s.turns, hold, turnLease, stop) })
	})

	journal, err := memory.NewRecorder(ctx, stop, s.turns, hold, int(req.GetStep()), req.GetAttempt() > 1)
	if err != nil {
		return nil, failure.FromCause(ctx, err)
	}
	defer func() { end(); journal.Wait() }()
	if req.GetRecorded() {
		if g := given(req); g != nil {
			journal.Record(execution.Entry{Phase: execution.Intent, Given: g, Late: true})
		}
	}
	trespasses := s.trespasses(req, out)
	result, err := s.step(ctx, req, journal, func(e event.Event) error {
		s.blocked(req, e)
		trespasses.note(ctx, e)
		shown := wire.EventToProto(e)
		if shown == nil {
			return nil
		}
		return out.send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: shown}})
	})
	trespasses.failed(ctx, err)
	return result, err
}

// blocked makes an entry of the audit log of a tool call that did not run, or waits for somebody's
// word, because of what the turn had read (S14). What it read is not in it.
func (s *agentServer) blocked(req *troupev1.ExecuteStepRequest, e event.Event) {
	w, ok := e.Payload.(event.Warning)
	if !ok || w.Reason != loop.ReasonGuarded {
		return
	}
	s.audit.Record(audit.Entry{
		Kind: audit.Denied, Actor: s.agent.Name(), Action: "tool " + w.Tool, Object: req.GetSessionId(), Result: string(failure.PolicySecurity),
		Facts: map[string]string{"trace": req.GetTraceId(), "turn": req.GetTurnId(), "agent": e.Author, "guard": w.Reason},
	})
}

// step runs the agent and commits what it led to. A step that failed has used of its budget, too:
// then the result says that alone.
func (s *agentServer) step(ctx context.Context, req *troupev1.ExecuteStepRequest, journal *memory.Recorder, emit func(event.Event) error) (made *troupev1.StepResult, err error) {
	step := wire.StepFromProto(req)
	defer func() {
		if err != nil && step.Budget != nil {
			made = &troupev1.StepResult{Used: wire.UsedToProto(step.Budget.Used())}
		}
	}()
	step.Journal, step.Broker = journal, s.broker.For(step.SessionID)
	if err := s.attach(ctx, refOf(req), step.History); err != nil {
		return nil, failure.FromCause(ctx, err)
	}
	auth := wire.AuthFromProto(req.GetAuth())
	defer auth.Wipe()
	authorized := execution.WithAuth(ctx, auth)
	clear(req.GetAuth().GetCredentials())
	req.Auth = nil // the plain text of it is nobody's any more
	done, err := s.run(authorized, agent.Invocation{
		Step:  step,
		Store: agent.Remember(s.turns, memory.Hold{Ref: refOf(req), TurnID: step.TurnID, Epoch: req.GetEpoch()}, step.User),
		Trace: ownership.NewTraceView(map[string]string{"trace_id": step.TraceID}),
	}, emit)
	if err == nil && step.Silent {
		err = silenced(&done)
	}
	if err == nil && len(done.Result.Pending) > 0 {
		err = journal.Sync(ctx) // the turn that goes on finds the step there, and not in its commit
	}
	left, err := s.left(ctx, req, journal, err)
	journal.Close()
	if err == nil {
		err = ctx.Err() // no commit begins behind the end of the step
	}
	if err != nil {
		return nil, failure.FromCause(ctx, err)
	}
	result := done.Result
	result.Step, result.Agent = int(req.GetStep()), req.GetAgent()
	if step.Budget != nil {
		used := step.Budget.Used()
		result.Used = &used
	}
	if result.Sequence, err = s.commit(ctx, req, result, done, left); err != nil {
		if failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) { // repeated until the step was stopped
			err = failure.FromCause(ctx, err)
		}
		return nil, err
	}
	for _, a := range step.Answers { // the turn goes on elsewhere, or has ended
		s.broker.Forget(a.AuthID)
	}
	return wire.ResultToProto(result), nil
}

// left are the entries of a step that is recorded which its commit has to bring. Those of one that
// failed are written now, if they can be, but for a last reply that never became its text: a handler
// may have refused it, and what is written is told as what a turn that fails had said.
func (s *agentServer) left(ctx context.Context, req *troupev1.ExecuteStepRequest, journal *memory.Recorder, failed error) ([]execution.Entry, error) {
	switch {
	case !req.GetRecorded():
		return nil, failed
	case failed != nil:
		ctx, cancel := context.WithTimeout(ctx, commitTime)
		defer cancel()
		journal.DropLate()
		_ = journal.Sync(ctx) // whatever comes of it: the step has failed
		return nil, failed
	default:
		return journal.Left(ctx)
	}
}

// silenced keeps what a step in a branch said out of the session. It refuses one that would end
// the turn, for others run beside it.
func silenced(done *event.TurnResult) error {
	if r := done.Result; r.InputRequired || r.Stopped || len(r.Pending) > 0 {
		return failure.Newf(failure.AgentContract, "agent.ExecuteStep",
			"agent %s would end the turn in a branch of the workflow; only a step outside of branches may ask the user, wait or stop", r.Agent)
	}
	done.Messages = nil
	return nil
}

// run runs the agent. An error without a mode is the agent's own; a panic of its code has one
// already (LC-29).
func (s *agentServer) run(ctx context.Context, inv agent.Invocation, emit func(event.Event) error) (event.TurnResult, error) {
	done, err := s.agent.Execute(ctx, inv, emit)
	if err != nil {
		if _, ok := errors.AsType[*failure.Error](err); !ok && ctx.Err() == nil {
			err = failure.New(failure.AgentLogic, "agent.ExecuteStep", "the agent failed; the worker's log has the cause").Because(err)
		}
	}
	return done, err
}

// commitTime is how long a commit may still be tried once the step is cancelled. It ends
// before the orchestrator gives the step up for its silence, so that it is told why.
const commitTime = 3 * time.Second

// commit makes the step's messages visible. From here on a cancelled call no longer takes
// the work back: the answer may be durable already.
func (s *agentServer) commit(step context.Context, req *troupev1.ExecuteStepRequest, result execution.Result, done event.TurnResult, left []execution.Entry) (int64, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(step))
	defer cancel()
	defer context.AfterFunc(step, func() { time.AfterFunc(commitTime, cancel) })()
	commit := memory.Commit{
		Ref:      refOf(req),
		TurnID:   req.GetTurnId(),
		Epoch:    req.GetEpoch(),
		Base:     req.GetBaseSequence(),
		Messages: done.Messages,
		State:    done.State,
		Result:   result,
		Outcome:  outcome(req.GetLast(), result),
		Journal:  left,
	}
	return retry.Do(ctx, func(ctx context.Context) (int64, error) { return s.turns.CommitStep(ctx, commit) })
}

// outcome is how the turn ends with this step, if it does. A question always ends it, and so
// does an agent that was stopped.
func outcome(last bool, result execution.Result) session.Outcome {
	switch {
	case result.InputRequired:
		return session.Asking(result)
	case last || result.Stopped:
		return session.OutcomeCompleted
	default:
		return session.OutcomeOpen
	}
}
