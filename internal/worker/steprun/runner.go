// Package steprun runs a step of an agent and commits its result to the memory service.
package steprun

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/recorder"
	"github.com/troupe-dev/troupe/internal/retry"
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

// Runner runs the steps of an agent and commits their results.
type Runner struct {
	agent  *agent.Agent
	turns  Store
	broker *broker.Broker
}

// New returns a runner for the agent of an instance.
func New(a *agent.Agent, instanceID string, turns Store) *Runner {
	return &Runner{agent: a, turns: turns, broker: broker.New(instanceID)}
}

// Store is what a step needs of the MEMORY tier.
type Store interface {
	memory.Turns
	memory.Journal
	hookstore.Tier
}

// RefOf is the session of a step.
func RefOf(req *troupev1.ExecuteStepRequest) session.Ref {
	return session.Ref{Tenant: req.GetTenant(), Session: req.GetSessionId()}
}

// Run runs the agent and commits what it led to. A step that failed has used of its budget, too:
// then the result says that alone.
func (s *Runner) Run(ctx context.Context, req *troupev1.ExecuteStepRequest, journal *recorder.Recorder,
	emit func(event.Event) error,
) (made *troupev1.StepResult, err error) {
	step := wire.StepFromProto(req)
	defer func() {
		if err != nil && step.Budget != nil {
			made = &troupev1.StepResult{Used: wire.UsedToProto(step.Budget.Used())}
		}
	}()
	step.Journal, step.Broker = journal, s.broker.For(step.SessionID)
	if err := s.attach(ctx, RefOf(req), step.History); err != nil {
		return nil, failure.FromCause(ctx, err)
	}
	auth := wire.AuthFromProto(req.GetAuth())
	defer auth.Wipe()
	authorized := execution.WithAuth(ctx, auth)
	clear(req.GetAuth().GetCredentials())
	req.Auth = nil // the plaintext credentials are dropped here
	done, err := s.run(authorized, agent.Invocation{
		Step:  step,
		Store: hookstore.New(s.turns, memory.Lease{Ref: RefOf(req), TurnID: step.TurnID, Epoch: req.GetEpoch()}, step.User),
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
// may have refused it, and entries of a failed turn are shown as what it had said.
func (s *Runner) left(ctx context.Context, req *troupev1.ExecuteStepRequest, journal *recorder.Recorder, failed error) ([]execution.Entry, error) {
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
		return journal.Unwritten(ctx)
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
func (s *Runner) run(ctx context.Context, inv agent.Invocation, emit func(event.Event) error) (event.TurnResult, error) {
	done, err := s.agent.Execute(ctx, inv, emit)
	if err != nil {
		if _, ok := errors.AsType[*failure.Error](err); !ok && ctx.Err() == nil {
			err = failure.New(failure.AgentLogic, "agent.ExecuteStep", "the agent failed; the worker's log has the cause").Because(err)
		}
	}
	return done, err
}

// commitTime is how long a commit may still be tried once the step is cancelled. It ends
// before the orchestrator gives the step up for its silence, so that the caller gets the reason.
const commitTime = 3 * time.Second

// commit makes the step's messages visible. From here on a cancelled call no longer takes
// the work back: the answer may be durable already.
func (s *Runner) commit(step context.Context, req *troupev1.ExecuteStepRequest, result execution.Result, done event.TurnResult,
	left []execution.Entry,
) (int64, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(step))
	defer cancel()
	defer context.AfterFunc(step, func() { time.AfterFunc(commitTime, cancel) })()
	commit := memory.Commit{
		Ref:      RefOf(req),
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
