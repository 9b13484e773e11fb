// Package replay runs the steps of an ended trace again, from their recordings, and makes its decisions
// again (ADR 0027). It changes neither the session nor the trace.
package replay

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// op is the operation that errors of this package name.
const op = "orchestrator.ReplayTrace"

// Memory is the part of the memory service that a replay reads.
type Memory interface {
	Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error)
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
}

// Replayer replays traces. It is safe for concurrent use.
type Replayer struct {
	Memory    Memory
	Traces    trace.Store
	Instances *instances.Cache
	Pool      *connection.Pool
	Workflows *workflow.Set

	// Credentials issues the credentials that workers present to the memory service (nil when the mesh has no
	// identities).
	Credentials *turncred.Authority
}

// Request selects what to replay.
type Request struct {
	Ref      trace.Ref
	Step     int    // the only step to run (0 means all steps and the decisions)
	Instance string // instance that runs all steps of its agent (empty means any instance)
}

// ReplayTrace runs the steps of a trace again, up to the first one whose outcome differs. Modes: not_found when
// the trace, step or instance does not exist, or nothing was recorded of them; session_busy while the trace runs;
// no_worker when no instance takes a step; agent_contract when the worker cannot replay steps.
func (r *Replayer) ReplayTrace(ctx context.Context, req Request) (*troupev1.ReplayTraceResponse, error) {
	was, err := r.loadTurn(ctx, req.Ref)
	if err != nil {
		return nil, err
	}
	numbers := slices.Sorted(maps.Keys(was.results))
	if req.Step > 0 {
		if was.results[req.Step] == nil {
			return nil, failure.Newf(failure.NotFound, op, "step: no step %d of this trace has ended; there are %d", req.Step, len(numbers))
		}
		numbers = []int{req.Step}
	}
	only, err := r.agentsOfInstance(req.Instance, was, numbers)
	if err != nil {
		return nil, err
	}
	resp := &troupev1.ReplayTraceResponse{}
	var began []conversation.Message // the history with which the turn began
	ran := false
	for _, number := range numbers {
		given, why, err := r.loadInput(ctx, was, number)
		if err != nil {
			return nil, err
		}
		if why != "" {
			resp.Steps = append(resp.Steps, &troupev1.StepReplay{Step: int32(number), Agent: was.results[number].GetAgent(), Skipped: why})
			continue
		}
		if began == nil {
			began = given.initialMessages
		}
		instance := ""
		if slices.Contains(only, given.step.GetAgent()) {
			instance = req.Instance
		}
		if err := r.addCredential(ctx, was, given.step); err != nil {
			return nil, err
		}
		done, err := r.replayStep(ctx, given.step, was.results[number], instance)
		if err != nil {
			return nil, err
		}
		resp.Steps, ran = append(resp.Steps, done), true
		if done.GetDifference() != nil {
			return resp, nil
		}
	}
	if !ran {
		return nil, notRecordedError(resp.GetSteps())
	}
	if req.Step == 0 {
		resp.Decisions, resp.Routing = r.replayDecisions(was, began)
	}
	return resp, nil
}

// agentsOfInstance returns the agents of the given steps that have an instance with this name. That instance
// replays the steps of these agents. Any instance may replay the others.
func (r *Replayer) agentsOfInstance(instance string, was *recordedTurn, numbers []int) (agents []string, _ error) {
	if instance == "" || len(numbers) == 0 {
		return nil, nil
	}
	known := r.Instances.Instances()
	var all []string
	for _, number := range numbers {
		agent := was.results[number].GetAgent()
		if slices.Contains(all, agent) {
			continue
		}
		all = append(all, agent)
		if slices.ContainsFunc(known, func(in registry.Instance) bool { return in.Agent == agent && in.ID == instance }) {
			agents = append(agents, agent)
		}
	}
	if len(agents) == 0 {
		return nil, failure.Newf(failure.NotFound, op,
			"instance_id: no agent of these steps (%s) has an instance %q; troupe get instances lists those there are", strings.Join(all, ", "), instance)
	}
	return agents, nil
}

// notRecordedError returns the error for a trace without any step that can be replayed.
func notRecordedError(steps []*troupev1.StepReplay) error {
	why := "no step of it has ended"
	if len(steps) > 0 {
		why = steps[0].GetSkipped()
	}
	return failure.Newf(failure.NotFound, op, "the trace cannot be replayed: %s", why)
}

// recordedTurn holds the turn as its trace recorded it.
type recordedTurn struct {
	record    *troupev1.Trace
	ref       session.Ref
	results   map[int]*troupev1.StepResult      // results of ended steps, failed ones included, by number
	decisions map[int]*troupev1.RoutingDecision // decisions about the agents of steps, by number of the step
	choices   map[int]*troupev1.RoutingDecision // choices by strategy, by number of the choice
}

// eventPageSize is how many events are read at once.
const eventPageSize = 256

// loadTurn reads the turn of an ended trace.
func (r *Replayer) loadTurn(ctx context.Context, ref trace.Ref) (*recordedTurn, error) {
	record, err := r.Traces.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
		return nil, failure.New(failure.SessionBusy, op, "the trace still runs; replay it when it has ended").With("trace_id", ref.Trace)
	}
	was := &recordedTurn{
		record: record, ref: session.Ref{Tenant: ref.Tenant, Session: record.GetSessionId()},
		results: map[int]*troupev1.StepResult{}, decisions: map[int]*troupev1.RoutingDecision{}, choices: map[int]*troupev1.RoutingDecision{},
	}
	for after := uint64(0); ; {
		events, err := r.Traces.Events(ctx, ref, after, eventPageSize)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			after = e.GetSequence()
			if d := e.GetRoutingDecision(); d.GetNumber() > 0 {
				was.decisions[int(d.GetNumber())] = d
			}
			if d := e.GetRoutingDecision(); d.GetChoice() > 0 {
				was.choices[int(d.GetChoice())] = d
			}
			if done := e.GetStepFinished(); done != nil {
				was.results[int(e.GetStep())] = done.GetResult()
			}
		}
		if len(events) == 0 || after >= record.GetLastSequence() {
			return was, nil
		}
	}
}

// addCredential adds a credential to the request of a step. With it the worker can read what the original step
// could read, but cannot write.
func (r *Replayer) addCredential(ctx context.Context, was *recordedTurn, step *troupev1.ExecuteStepRequest) (err error) {
	deadline, _ := ctx.Deadline()
	step.Tenant = was.ref.Tenant
	step.Credential, err = r.Credentials.Issue(turncred.Turn{
		Agent: step.GetAgent(), Tenant: was.ref.Tenant, Session: was.ref.Session, ID: step.GetTurnId(), User: step.GetUserId(), Trace: was.record.GetTraceId(),
		Step: int(step.GetStep()), Replay: true,
	}, deadline)
	return err
}

// replayStep replays a step at an instance of its agent. If only is set, it uses the instance with this name.
func (r *Replayer) replayStep(ctx context.Context, step *troupev1.ExecuteStepRequest, result *troupev1.StepResult, only string) (*troupev1.StepReplay, error) {
	list, _ := r.Instances.List(step.GetAgent())
	instances := list.Instances
	refusal := error(failure.Newf(failure.NoWorker, op, "no instance of agent %s is ready", step.GetAgent()))
	if only != "" {
		instances = slices.DeleteFunc(slices.Clone(instances), func(in registry.Instance) bool { return in.ID != only })
		refusal = failure.Newf(failure.NoWorker, op, "instance %s of agent %s is not ready", only, step.GetAgent())
	}
	for _, in := range instances {
		done, err := r.callReplayStep(ctx, in, &troupev1.ReplayStepRequest{Step: step, Result: result})
		if err == nil {
			done.InstanceId = in.ID
			return done, nil
		}
		if !failure.Is(err, failure.SystemNetwork, failure.InstanceFull, failure.InstancePaused, failure.InstanceDraining, failure.AgentState) {
			return nil, err
		}
		refusal = failure.Newf(failure.NoWorker, op, "no instance of agent %s took step %d: %s", step.GetAgent(), step.GetStep(),
			failure.PlainMessage(err)).Because(err)
	}
	return nil, refusal
}

func (r *Replayer) callReplayStep(ctx context.Context, in registry.Instance, req *troupev1.ReplayStepRequest) (*troupev1.StepReplay, error) {
	conn, release, err := r.Pool.Get(ctx, in)
	if err != nil {
		return nil, err
	}
	defer release()
	resp, err := troupev1.NewAgentServiceClient(conn).ReplayStep(ctx, req)
	if err = grpcfailure.FromStatus(op, err); failure.Is(err, failure.AgentContract) && resp == nil {
		err = failure.Newf(failure.AgentContract, op, "the worker of instance %s cannot replay steps; run a version that implements ReplayStep", in.ID).
			Because(err)
	}
	return resp.GetReplay(), err
}
