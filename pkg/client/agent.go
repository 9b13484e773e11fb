package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/spending"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ReasonRestarted is the reason of the warning that a remote agent starts again, because its worker was lost or
// its failed turn is retried. The text deltas that its step has sent so far are retracted.
const ReasonRestarted = "REMOTE_STEP_BEGUN_AGAIN"

// Agent returns an agent whose work is done by an agent or a workflow of the mesh: in a flow, as a tool, or alone. The
// remote agent runs in a session of its own, derived from the session and the branch of the caller, so it remembers
// earlier turns. Of the parent conversation it gets the last user input and the results of earlier agents. It acts in
// the name of the parent turn (LP-18) and shows that turn's credential to the orchestrator, so the client must belong to
// the mesh in which the caller works.
//
// The remote turn is derived from the parent turn and the place of the call in it. When the caller's worker is lost, its
// successor attaches to the remote turn, running or ended, and nothing runs twice; the successor reports its events
// again. The first attempt of a step reports a failed remote turn as it is. A later attempt, or a resume of the parent
// turn, asks for it once more: it resumes the remote turn where it failed, or else repeats it. An attempt cannot tell
// a retry from a lost worker, so a successor does the same. Repeating an attempt never adds another remote turn.
//
// The remote turn names the place of the call as its parent and is reported as subtask_started. Events of the remote agent
// keep their authors; their branches are below the branch of the caller. State and artifacts stay in the remote
// session. A failure keeps its mode, unless the mode would say something about the caller's own step: then it is
// resource_tool.
//
// When the remote agent asks a question, or calls of its tools wait for answers, the parent turn ends with a question that
// names the remote session. Such calls are answered there, and their results stay there; the parent turn does not
// continue by itself. Its next turn asks the remote agent anew and abandons calls that still wait.
//
// The remote turn is cancelled when the caller is stopped or cancelled, or when its events are no longer read (AD-33). It
// continues when the caller's worker is lost or its step is taken over, because the successor attaches to it.
//
// The remote turn gets a share of the rest of the parent's budget. The share is reserved while it runs, and its usage
// counts there. When it would nest too deep, when there are too many, or when nothing is left, the remote agent is not
// asked, and the caller's step fails with policy_budget (guarantee S17).
//
// Config may have every setting of an agent that does not call a model itself. Its name defaults to target. An agent that
// would call itself fails with agent_logic. Agent has the errors of agent.New.
func (c *Client) Agent(target string, config agent.Config) (*agent.Agent, error) {
	config.Name = cmp.Or(config.Name, target)
	if target == "" || config.Run != nil || len(config.Agents) > 0 {
		return nil, failure.Newf(failure.AgentValidation, "client.Agent",
			"remote agent %q: it needs a target, and neither Run nor Agents: those are where it runs", config.Name)
	}
	config.Run = func(ctx context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			r := &remoteTurn{target: target, branch: inv.Branch(), yield: yield, spending: new(spending.Tally)}
			if err := r.run(ctx, c, inv); err != nil {
				yield(event.Event{}, err)
			}
		}
	}
	return agent.New(config)
}

// remoteTurn holds the state of one call of a remote agent.
type remoteTurn struct {
	target string
	branch string // branch of the local agent
	yield  func(event.Event, error) bool

	spending       *spending.Tally // budget that the remote turn has used so far
	earlierAmounts budget.Amounts  // budget that earlier remote turns used before they failed
	earlierUsage   execution.Usage // usage of these failed turns
	trace          string          // trace of the remote turn while it runs (empty otherwise)
	readerStopped  bool            // the caller stopped reading events
	result         execution.Result
}

func (r *remoteTurn) run(ctx context.Context, c *Client, inv agent.Invocation) error {
	if inv.Step.Agent == r.target {
		return failure.Newf(failure.AgentLogic, "client.Agent", "agent %s would ask itself; ask another one", r.target)
	}
	if _, over := inv.Step.Journal.(stepjournal.SealedJournal); over {
		return stepjournal.NewUnrecordedError("client.Agent", "what agent "+r.target+" did in a turn of its own")
	}
	// The request depends on earlier replies of the model, so their journal entries must be durable before it is
	// sent.
	if inv.Step.Journal != nil {
		if err := inv.Step.Journal.Sync(ctx); err != nil {
			return err
		}
	}
	limits, held, err := inv.Step.Budget.Child(inv.Concurrency())
	if err != nil {
		return err
	}
	defer func() { held.Settle(r.budgetUse()) }()
	defer r.cancelUnwanted(ctx, c, inv)
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if inv.Stop != nil {
		defer context.AfterFunc(inv.Stop, leave)()
	}
	req := r.newRequest(ctx, inv)
	if inv.Step.Budget != nil {
		req.Budget = wire.LimitsToProto(limits)
	}
	if inv.Step.TraceID != "" {
		ctx = turnctx.WithOutgoingCredential(turnctx.WithParentTrace(ctx, inv.Step.TraceID))
	}
	done, err := r.runRequest(ctx, c, inv, req)
	for n := 2; err == nil && isFailed(done) && n <= maxTurns(inv); n++ {
		done, err = r.retry(ctx, c, inv, req, done, n)
	}
	if err != nil || done == nil {
		return err
	}
	return r.yieldResult(done, req.GetSessionId())
}

// runRequest sends the request, which starts the remote turn or attaches to it, and returns the result. The result
// is nil if the caller stopped reading.
func (r *remoteTurn) runRequest(ctx context.Context, c *Client, inv agent.Invocation, req *troupev1.OrchestrateRequest) (*troupev1.TurnResult, error) {
	for e, err := range c.Turn(ctx, req) {
		r.trace = cmp.Or(e.GetTraceId(), r.trace)
		r.spending.AddEvent(e)
		if err != nil && inv.Stop != nil && inv.Stop.Err() != nil {
			r.yield(event.Event{Payload: event.Answer{Text: "The turn was stopped.", Reason: event.Stopped}}, nil)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if done := e.GetTurnResult(); done != nil {
			r.trace = ""
			return done, nil
		}
		if r.readerStopped = !r.forward(e); r.readerStopped {
			return nil, nil
		}
	}
	return nil, nil
}

// budgetUse returns how much of the parent turn's budget the remote turn has used. It counts as one turn, no
// matter how often it was retried and how many turns it started itself.
func (r *remoteTurn) budgetUse() budget.Amounts {
	used := r.earlierAmounts.Add(r.spending.Used())
	used.FanOut = 1
	return used
}

// cancelTimeout limits how long the cancellation of a remote turn may take (AD-33).
const cancelTimeout = 5 * time.Second

// cancelUnwanted cancels a remote turn whose result is no longer needed. That is so if the parent was stopped, its
// turn was cancelled or timed out, or its reader left. If ctx ended for another reason, the worker may be lost.
// Its successor then attaches to the remote turn, so the turn continues. Without a journal there is no successor,
// so the turn is always cancelled.
func (r *remoteTurn) cancelUnwanted(ctx context.Context, c *Client, inv agent.Invocation) {
	unwanted := r.readerStopped || inv.Stop != nil && inv.Stop.Err() != nil || inv.Step.Journal == nil ||
		failure.Is(context.Cause(ctx), failure.UserCancelled, failure.AgentTimeout)
	if r.trace == "" || !unwanted {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	// An error is ignored, because the remote turn ends by its own timeout at the latest.
	_, _ = c.CancelTrace(turnctx.WithOutgoingCredential(ctx), &troupev1.CancelTraceRequest{
		TraceId: r.trace,
		Reason:  "the agent that asked " + r.target + " was stopped",
	})
}

// The shortest and the longest timeout of a remote turn.
const (
	minTimeout = time.Second
	maxTimeout = 10 * time.Minute
)

// maxTurnIDBytes is the maximum length of Parent.turn_id in bytes. If the agent is called as a tool, the field holds
// the key of the tool call.
const maxTurnIDBytes = 64

// newRequest returns the request for the remote turn. All attempts of a step send the same request, except for the
// timeout, the budget, the credentials and the parent.
func (r *remoteTurn) newRequest(ctx context.Context, inv agent.Invocation) *troupev1.OrchestrateRequest {
	auth, _ := execution.AuthFrom(ctx)
	req := &troupev1.OrchestrateRequest{
		Input:  &troupev1.OrchestrateRequest_Text{Text: conversation.Truncate(inv.Prompt(), conversation.MaxMessageBytes)},
		Target: r.target, UserId: inv.Step.User, OnBusy: troupev1.OnBusy_ON_BUSY_ENQUEUE, Auth: wire.AuthToProto(auth),
		MaxIterations: int32(inv.MaxIterations),
	}
	if c, ok := execution.ContextFrom(ctx); ok {
		o := c.Origin()
		req.Profile, req.Metadata = o.Profile, o.Metadata
	}
	if inv.Step.SessionID != "" {
		sum := sha256.Sum256([]byte(inv.Step.SessionID + "\x00" + r.branch))
		req.SessionId = turnctx.ChildSessionPrefix(conversationID(ctx, inv)) + hex.EncodeToString(sum[:16])
	}
	if inv.Step.TurnID != "" {
		req.RequestId = "sub-" + inv.Key()
	}
	if inv.Step.TraceID != "" {
		req.Parent = &troupev1.Parent{
			TraceId: inv.Step.TraceID, TurnId: conversation.Truncate(inv.Step.TurnID, maxTurnIDBytes), Step: int32(inv.Step.Number), Call: int32(inv.Call()),
			RootTraceId: cmp.Or(inv.Step.RootTraceID, inv.Step.TraceID), Untrusted: inv.Untrusted(), Ancestors: inv.Step.Ancestors,
		}
		if inv.Step.Budget != nil {
			req.Parent.Depth = int32(inv.Step.Budget.Depth()) + 1
		}
	}
	if until, ok := ctx.Deadline(); ok {
		req.Timeout = durationpb.New(min(max(time.Until(until), minTimeout), maxTimeout))
	}
	return req
}

// conversationID returns the id of the session in which the parent turn runs. The step of an agent that is called
// as a tool has a generated session id, so that id cannot be used.
func conversationID(ctx context.Context, inv agent.Invocation) string {
	if c, ok := execution.ContextFrom(ctx); ok && c.Origin().SessionID != "" {
		return c.Origin().SessionID
	}
	return inv.Step.SessionID
}

// forward yields an event of the remote turn to the caller. It returns false when the caller stops reading.
func (r *remoteTurn) forward(e *troupev1.Event) bool {
	if begun := e.GetTurnStarted(); begun != nil {
		return r.reportSubtask(e, begun)
	}
	if step := e.GetStepFinished(); step != nil {
		done := wire.ResultFromProto(step.GetResult())
		r.result.Iterations += done.Iterations
		r.result.Incomplete = done.Incomplete
		r.result.ToolsCalled = append(r.result.ToolsCalled, done.ToolsCalled...)
		r.result.Observations = append(r.result.Observations, done.Observations...)
		return true
	}
	payload := payloadFromProto(e)
	if payload == nil {
		return true
	}
	author, branch := r.authorAndBranch(e)
	return r.yield(event.Event{Time: e.GetTime().AsTime(), Author: author, Branch: branch, Payload: payload}, nil)
}

// reportSubtask yields the subtask_started event that names the remote turn.
func (r *remoteTurn) reportSubtask(e *troupev1.Event, begun *troupev1.TurnStarted) bool {
	s := event.SubtaskStarted{
		Target: r.target, Session: e.GetSessionId(), Request: begun.GetRequestId(), Trace: e.GetTraceId(), Turn: begun.GetTurnId(),
	}
	return r.yield(event.Event{Time: e.GetTime().AsTime(), Payload: s}, nil)
}

// authorAndBranch returns the author and the branch for an event of the remote turn. Both are empty for an event
// of the remote agent itself.
func (r *remoteTurn) authorAndBranch(e *troupev1.Event) (author, branch string) {
	path := strings.Split(cmp.Or(e.GetBranch(), e.GetAgent()), ".")
	if path[0] == r.target || path[0] == "" {
		path = path[1:]
	}
	if len(path) == 0 {
		return "", ""
	}
	return path[len(path)-1], r.branch + "." + strings.Join(path, ".")
}

// yieldResult yields the result of the remote turn.
func (r *remoteTurn) yieldResult(done *troupev1.TurnResult, session string) error {
	r.result.Usage = r.earlierUsage.Add(wire.UsageFromProto(done.GetUsage()))
	out := event.TurnResult{Reason: event.Natural, Result: r.result}
	failed := grpcfailure.FromProto(done.GetFailure())
	if failed != nil && failed.Facts[failure.FactTrace] != "" { // WithRun replaces this fact by the trace of the parent turn
		failed = failed.With("remote_trace_id", failed.Facts[failure.FactTrace])
	}
	switch {
	case failed != nil:
		out.Reason = event.Failed
	case done.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, done.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED:
		out.Reason, out.Result.InputRequired = event.InputRequired, true
	case r.result.Stopped:
		out.Reason = event.Stopped
	case r.result.Incomplete == string(event.MaxIterations):
		out.Reason = event.MaxIterations
	}
	out.Result.Untrusted = conversation.SourceName("agent", r.target) // what the remote agent has read is unknown here
	out.Result.Agent, out.Result.Text, out.Result.Confidence = r.target, done.GetText(), done.Confidence
	if len(done.GetPending()) > 0 {
		out.Result.Text += " It is answered in session " + session + "."
	}
	if !r.yield(event.Event{Payload: out}, nil) || failed == nil {
		return nil
	}
	return r.toStepFailure(failed)
}

// toStepFailure converts the failure of the remote turn into a failure of this step. A mode that would describe a
// failure of the parent's own step becomes resource_tool.
func (r *remoteTurn) toStepFailure(err *failure.Error) error {
	if !failure.Is(err, failure.Unknown, failure.Fenced, failure.TurnNotOpen, failure.Nondeterminism, failure.SessionDeleted, failure.BaseMismatch,
		failure.InstanceDraining, failure.SystemNetwork, failure.SystemTimeout, failure.UserCancelled, failure.AttemptsExhausted,
		failure.AgentContract, failure.SystemCrash, failure.SystemOOM) { // the last three would end this instance
		return err
	}
	return failure.Newf(failure.ResourceTool, "client.Agent", "agent %s failed: %s", r.target, err.Message).Because(err)
}

// payloadFromProto converts the payload of an event. It returns nil for events that only concern the mesh or
// another session.
func payloadFromProto(e *troupev1.Event) event.Payload {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TextDelta:
		return event.TextDelta{Text: p.TextDelta.GetText()}
	case *troupev1.Event_TextRetracted:
		return event.Warning{
			Reason:  ReasonRestarted,
			Message: "the worker of agent " + e.GetAgent() + " was lost; what it said so far is void, and another goes on",
		}
	case *troupev1.Event_ToolProgress:
		progress := p.ToolProgress
		return event.ToolProgress{CallID: progress.GetCallId(), Tool: progress.GetTool(), Message: progress.GetMessage(), Fraction: progress.Fraction}
	case *troupev1.Event_AgentMessage:
		if p.AgentMessage.GetText() == "" {
			return nil
		}
	}
	return wire.StepPayloadFromProto(e)
}
