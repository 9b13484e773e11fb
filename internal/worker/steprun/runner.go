// Package steprun runs one step of an agent and commits its result to the memory service. Package stepserver calls
// it.
package steprun

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/recorder"
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
	store  Store
	broker *broker.Broker
}

// New returns a runner for the steps of agent a. instanceID names the instance to the credential broker.
func New(a *agent.Agent, instanceID string, turns Store) *Runner {
	return &Runner{agent: a, store: turns, broker: broker.New(instanceID)}
}

// Agent returns the agent that the runner runs.
func (r *Runner) Agent() *agent.Agent { return r.agent }

// Store is the part of memory.Store that a step uses.
type Store interface {
	memory.Turns
	memory.Journal
	hookstore.MemoryTier
}

// SessionRef returns the session that a step belongs to.
func SessionRef(req *troupev1.ExecuteStepRequest) session.Ref {
	return session.Ref{Tenant: req.GetTenant(), Session: req.GetSessionId()}
}

// ReadEntries is a function that returns the latest trace entries of earlier turns of the session.
type ReadEntries func(ctx context.Context, limit int) ([]event.Event, error)

// Run runs the agent and commits the result. earlier reads the trace of the session (nil if the orchestrator does not provide
// it). If the step fails, the returned result only contains the used budget.
func (r *Runner) Run(ctx context.Context, req *troupev1.ExecuteStepRequest, journal *recorder.Recorder, earlier ReadEntries,
	emit func(event.Event) error,
) (made *troupev1.StepResult, err error) {
	step := wire.StepFromProto(req)
	defer func() {
		if err != nil && step.Budget != nil {
			made = &troupev1.StepResult{Used: wire.UsedToProto(step.Budget.Used())}
		}
	}()
	step.Journal, step.Broker = journal, r.broker.ForSession(step.SessionID)
	if err := r.loadRounds(ctx, req, &step); err != nil {
		return nil, failure.FromCause(ctx, err)
	}
	if err := r.loadAttachments(ctx, SessionRef(req), step.History); err != nil {
		return nil, failure.FromCause(ctx, err)
	}
	auth := wire.AuthFromProto(req.GetAuth())
	defer auth.Wipe()
	authorized := execution.WithAuth(ctx, auth)
	clear(req.GetAuth().GetCredentials())
	req.Auth = nil // the plaintext credentials are dropped here
	done, err := r.runAgent(authorized, agent.Invocation{
		Step:  step,
		Store: hookstore.WithEntries(hookstore.New(r.store, memory.Lease{Ref: SessionRef(req), TurnID: step.TurnID, Epoch: req.GetEpoch()}, step.User), earlier),
		Trace: ownership.NewTraceView(map[string]string{"trace_id": step.TraceID}), MaxIterations: int(req.GetMaxIterations()),
	}, emit)
	if err == nil && step.Silent {
		err = dropBranchMessages(&done, step.Answers)
	}
	if err == nil && len(done.Result.Pending) > 0 {
		err = journal.Sync(ctx) // the continuing turn finds the step in the journal, not in a commit
	}
	left, err := r.entriesToCommit(ctx, req, journal, err)
	rounds := roundsToCommit(req, journal, done.Rounds)
	journal.Close()
	if err == nil {
		err = ctx.Err() // no commit starts after the step has ended
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
	if result.Sequence, err = r.commitStep(ctx, req, result, done, commitJournal{left, rounds}, emit); err != nil {
		if failure.Is(err, failure.SystemNetwork, failure.SystemTimeout) { // the commit was retried until the step was stopped
			err = failure.FromCause(ctx, err)
		}
		return nil, err
	}
	for _, a := range step.Answers { // the answers are used, so their keys are no longer needed
		r.broker.Forget(a.AuthID)
	}
	return wire.ResultToProto(result), nil
}

// entriesToCommit returns the journal entries that the commit of a recorded step must store. A failed step has no
// commit, so it writes its entries now, if it can. It drops a last reply that was never delivered: a handler may
// have rejected it, and entries of a failed turn are shown as text of the agent.
func (r *Runner) entriesToCommit(ctx context.Context, req *troupev1.ExecuteStepRequest, journal *recorder.Recorder, failed error) ([]execution.Entry, error) {
	switch {
	case !req.GetRecorded():
		return nil, failed
	case failed != nil:
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		defer cancel()
		journal.DropLate()
		_ = journal.Sync(ctx) // the step has already failed
		return nil, failed
	default:
		return journal.Unwritten(ctx)
	}
}

// dropBranchMessages drops the messages of a step in a branch, because they do not belong in the session. It
// returns an error if the step would end the turn, because parallel steps are still running. If an answer has stopped
// the step, the error ends the turn.
func dropBranchMessages(done *event.TurnResult, answers []execution.Answer) error {
	r := done.Result
	stop := slices.IndexFunc(answers, func(a execution.Answer) bool { return a.Verdict == execution.Stop })
	switch {
	case r.Stopped && stop >= 0:
		return failure.Newf(failure.UserCancelled, "agent.ExecuteStep", "the answer to call %s stopped the turn", answers[stop].ID)
	case r.Stopped || r.InputRequired && len(r.Pending) == 0:
		return failure.Newf(failure.AgentContract, "agent.ExecuteStep",
			"agent %s would end the turn in a branch of the workflow; only a step outside of branches may ask the user or stop", r.Agent)
	}
	done.Messages = nil
	return nil
}

// runAgent runs the agent. It gives an error without a failure mode the mode agent_logic. A panic already has a
// mode (LC-29).
func (r *Runner) runAgent(ctx context.Context, inv agent.Invocation, emit func(event.Event) error) (event.TurnResult, error) {
	done, err := r.agent.Execute(ctx, inv, emit)
	if err != nil {
		if _, ok := errors.AsType[*failure.Error](err); !ok && ctx.Err() == nil {
			err = failure.New(failure.AgentLogic, "agent.ExecuteStep", "the agent failed; the worker's log has the cause").Because(err)
		}
	}
	return done, err
}

// commitTimeout bounds the commit of a cancelled step. It is shorter than the orchestrator's timeout for an
// unresponsive step, so that the orchestrator still gets the reason.
const commitTimeout = 3 * time.Second

// commitJournal holds the journal entries and the tool rounds of a commit.
type commitJournal struct {
	entries []execution.Entry     // entries of a recorded step that may not be stored yet
	rounds  []memory.RoundMessage // messages of the tool rounds, for the history of the agent
}

// commitStep commits the step, which makes its messages visible. Cancelling the step then no longer stops the
// commit at once, because the result may already be durable.
//
// A step in a branch whose calls wait has no commit. The orchestrator closes the turn when the other branches have ended,
// and stores the result then.
func (r *Runner) commitStep(step context.Context, req *troupev1.ExecuteStepRequest, result execution.Result, done event.TurnResult,
	journal commitJournal, emit func(event.Event) error,
) (int64, error) {
	if req.GetSilent() && len(result.Pending) > 0 {
		return req.GetBaseSequence(), nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(step))
	defer cancel()
	defer context.AfterFunc(step, func() { time.AfterFunc(commitTimeout, cancel) })()
	commit := memory.Commit{
		Ref:      SessionRef(req),
		TurnID:   req.GetTurnId(),
		Epoch:    req.GetEpoch(),
		Base:     req.GetBaseSequence(),
		Messages: done.Messages,
		State:    done.State,
		Expected: done.Expected,
		Result:   result,
		Outcome:  turnOutcome(req.GetLast(), result),
		Journal:  journal.entries,
		Rounds:   journal.rounds,
	}
	last, _, err := hookstore.CommitStep(ctx, r.store, commit, done.Rebase, func(w event.Warning) {
		_ = emit(event.Event{Time: time.Now(), Author: result.Agent, Payload: w}) // the commit does not depend on it
	})
	return last, err
}

// turnOutcome returns the outcome of the turn after this step, which is OutcomeOpen if the turn continues. A
// question to the user ends the turn, and so does an agent that was stopped.
func turnOutcome(last bool, result execution.Result) session.Outcome {
	switch {
	case result.InputRequired:
		return session.InputOutcome(result)
	case last || result.Stopped:
		return session.OutcomeCompleted
	default:
		return session.OutcomeOpen
	}
}
