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

// ReasonBegunAgain is the warning of a remote agent whose worker was lost, or whose turn had failed
// and is asked for once more: the text deltas of its step so far are void.
const ReasonBegunAgain = "REMOTE_STEP_BEGUN_AGAIN"

// Agent returns an agent that has an agent or a workflow of the mesh do its work: in a flow,
// as a tool, or alone. It is asked in a session of its own, which follows from the session
// and the branch that it is called from, so that it remembers from turn to turn; of the
// conversation above it is told what the user said last and what the agents before it found.
// It acts in the name of the turn (LP-18), whose credential is shown to the orchestrator: so the
// client has to be one of the mesh in which the agent works.
//
// Its turn follows from the turn above and the place of the call in it: when the worker above
// is lost, its successor attaches to the turn that runs, or has ended, and nothing runs
// twice. The successor tells its events again. A turn that has failed is told as it is in the first
// attempt of the step; a later one, and a resume of the turn above, ask for it once more: it is gone
// on with where it failed, or else asked anew. They cannot tell a retry from a worker that was lost,
// so the successor of one does so, too, when it finds the remote turn failed; what it asks for is one
// turn however often that attempt is repeated.
//
// The remote turn names the place of the call as its parent, and is told as subtask_started. The
// events of the remote agent are told with their authors, and branches below the one that
// it is called from. Its state and artifacts stay in its session. A failure keeps its mode,
// unless that would say something of the step above: then it is resource_tool.
//
// When the remote agent asks a question, or calls of its tools wait for somebody, the turn above
// ends with that: as a question, in which stands where such calls are answered. That is the
// remote session, and what comes of it is in there; the turn above does not go on by itself. Its
// next turn asks the remote agent anew, and calls that still wait then are left for good.
//
// When the agent above is stopped or cancelled, or nobody reads its events any more, the remote
// turn is cancelled (AD-33). When its worker is lost, or its step taken away, the remote turn
// goes on, for the successor attaches to it.
//
// Its turn gets a share of what is left of the budget of the turn above, which is reserved while
// it runs, and what it used counts there. When it would lie too deep, or there were too many, or
// nothing is left, it is not asked, and the step above fails with policy_budget (S17).
//
// Config may have what an agent has that does not ask a model itself. Its name is that of
// target when there is none. An agent that is the remote one itself gets agent_logic. Modes:
// as those of agent.New.
func (c *Client) Agent(target string, config agent.Config) (*agent.Agent, error) {
	config.Name = cmp.Or(config.Name, target)
	if target == "" || config.Run != nil || len(config.Agents) > 0 {
		return nil, failure.Newf(failure.AgentValidation, "client.Agent",
			"remote agent %q: it needs a target, and neither Run nor Agents: those are where it runs", config.Name)
	}
	config.Run = func(ctx context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			r := &remote{target: target, branch: inv.Branch(), yield: yield, spent: new(spending.Tally)}
			if err := r.run(ctx, c, inv); err != nil {
				yield(event.Event{}, err)
			}
		}
	}
	return agent.New(config)
}

// remote is one turn of a remote agent.
type remote struct {
	target string
	branch string // of the agent that stands for it
	yield  func(event.Event, error) bool

	spent  *spending.Tally // by the remote turn, as far as it was told
	before budget.Amounts  // used by the turns of it that had failed
	usage  execution.Usage // of those
	trace  string          // of the remote turn, while it runs
	deaf   bool            // nobody reads any more
	result execution.Result
}

func (r *remote) run(ctx context.Context, c *Client, inv agent.Invocation) error {
	if inv.Step.Agent == r.target {
		return failure.Newf(failure.AgentLogic, "client.Agent", "agent %s would ask itself; ask another one", r.target)
	}
	if _, over := inv.Step.Journal.(stepjournal.Sealed); over {
		return stepjournal.UnrecordedError("client.Agent", "what agent "+r.target+" did in a turn of its own")
	}
	// What is asked rests on what was said before, so a successor has to know that.
	if inv.Step.Journal != nil {
		if err := inv.Step.Journal.Sync(ctx); err != nil {
			return err
		}
	}
	limits, held, err := inv.Step.Budget.Child(inv.Beside())
	if err != nil {
		return err
	}
	defer func() { held.Settle(r.used()) }()
	defer r.abandon(ctx, c, inv)
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if inv.Stop != nil {
		defer context.AfterFunc(inv.Stop, leave)()
	}
	req := r.request(ctx, inv)
	if inv.Step.Budget != nil {
		req.Budget = wire.LimitsToProto(limits)
	}
	if inv.Step.TraceID != "" {
		ctx = turnctx.Outgoing(turnctx.WithParentTrace(ctx, inv.Step.TraceID))
	}
	done, err := r.ask(ctx, c, inv, req)
	for n := 2; err == nil && failed(done) && n <= attempts(inv); n++ {
		done, err = r.again(ctx, c, inv, req, done, n)
	}
	if err != nil || done == nil {
		return err
	}
	return r.end(done, req.GetSessionId())
}

// ask has the remote turn of a request run, or attaches to it, and returns how it ended. The result
// is nil when nobody wants it any more.
func (r *remote) ask(ctx context.Context, c *Client, inv agent.Invocation, req *troupev1.OrchestrateRequest) (*troupev1.TurnResult, error) {
	for e, err := range c.Turn(ctx, req) {
		r.trace = cmp.Or(e.GetTraceId(), r.trace)
		r.spent.Note(e)
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
		if r.deaf = !r.tell(e); r.deaf {
			return nil, nil
		}
	}
	return nil, nil
}

// used is what the remote turn used of the budget of the turn above: one turn, whatever it began
// itself, and however often it was asked for.
func (r *remote) used() budget.Amounts {
	used := r.before.Add(r.spent.Used())
	used.FanOut = 1
	return used
}

// cancelTime is what a remote turn may take to be cancelled (AD-33).
const cancelTime = 5 * time.Second

// abandon cancels a remote turn that has not ended, if nobody wants its result: the agent above
// was stopped, or its turn cancelled. A context that ended for another reason may be that of a
// worker which is lost; where there is no journal, nobody comes after it.
func (r *remote) abandon(ctx context.Context, c *Client, inv agent.Invocation) {
	unwanted := r.deaf || inv.Stop != nil && inv.Stop.Err() != nil || inv.Step.Journal == nil ||
		failure.Is(context.Cause(ctx), failure.UserCancelled, failure.AgentTimeout)
	if r.trace == "" || !unwanted {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	// Whatever comes of it: the remote turn has a time of its own.
	_, _ = c.CancelTrace(turnctx.Outgoing(ctx), &troupev1.CancelTraceRequest{TraceId: r.trace, Reason: "the agent that asked " + r.target + " was stopped"})
}

// The limits of a turn's timeout.
const (
	minTimeout = time.Second
	maxTimeout = 10 * time.Minute
)

// maxTurnID is that of Parent.turn_id; an agent that is a tool has the key of its call there.
const maxTurnID = 64

// request is the same in all attempts of the step, but for its timeout, its budget, its
// credentials and its parent, which are no part of what it asks.
func (r *remote) request(ctx context.Context, inv agent.Invocation) *troupev1.OrchestrateRequest {
	auth, _ := execution.AuthFrom(ctx)
	req := &troupev1.OrchestrateRequest{
		Input:  &troupev1.OrchestrateRequest_Text{Text: conversation.Cut(inv.Prompt(), conversation.MaxMessageBytes)},
		Target: r.target, UserId: inv.Step.User, OnBusy: troupev1.OnBusy_ON_BUSY_ENQUEUE, Auth: wire.AuthToProto(auth),
	}
	if c, ok := execution.ContextFrom(ctx); ok {
		o := c.Origin()
		req.Profile, req.Metadata = o.Profile, o.Metadata
	}
	if inv.Step.SessionID != "" {
		sum := sha256.Sum256([]byte(inv.Step.SessionID + "\x00" + r.branch))
		req.SessionId = turnctx.ChildSessionPrefix(conversationOf(ctx, inv)) + hex.EncodeToString(sum[:16])
	}
	if inv.Step.TurnID != "" {
		req.RequestId = "sub-" + inv.Key()
	}
	if inv.Step.TraceID != "" {
		req.Parent = &troupev1.Parent{
			TraceId: inv.Step.TraceID, TurnId: conversation.Cut(inv.Step.TurnID, maxTurnID), Step: int32(inv.Step.Number), Call: int32(inv.Call()),
			RootTraceId: cmp.Or(inv.Step.RootTraceID, inv.Step.TraceID), Untrusted: inv.Untrusted(),
		}
		if inv.Step.Budget != nil {
			req.Parent.Depth = int32(inv.Step.Budget.Level()) + 1
		}
	}
	if until, ok := ctx.Deadline(); ok {
		req.Timeout = durationpb.New(min(max(time.Until(until), minTimeout), maxTimeout))
	}
	return req
}

// conversationOf is the session of the turn. That of an agent that is a tool is made up for the call.
func conversationOf(ctx context.Context, inv agent.Invocation) string {
	if c, ok := execution.ContextFrom(ctx); ok && c.Origin().SessionID != "" {
		return c.Origin().SessionID
	}
	return inv.Step.SessionID
}

// tell passes an event on, and reports whether somebody reads.
func (r *remote) tell(e *troupev1.Event) bool {
	if begun := e.GetTurnStarted(); begun != nil {
		return r.began(e, begun)
	}
	if step := e.GetStepFinished(); step != nil {
		done := wire.ResultFromProto(step.GetResult())
		r.result.Iterations += done.Iterations
		r.result.MaxIterations = done.MaxIterations
		r.result.ToolsCalled = append(r.result.ToolsCalled, done.ToolsCalled...)
		r.result.Observations = append(r.result.Observations, done.Observations...)
		return true
	}
	payload := payloadOf(e)
	if payload == nil {
		return true
	}
	author, branch := r.place(e)
	return r.yield(event.Event{Time: e.GetTime().AsTime(), Author: author, Branch: branch, Payload: payload}, nil)
}

// began tells which turn works for this one.
func (r *remote) began(e *troupev1.Event, begun *troupev1.TurnStarted) bool {
	s := event.SubtaskStarted{
		Target: r.target, Session: e.GetSessionId(), Request: begun.GetRequestId(), Trace: e.GetTraceId(), Turn: begun.GetTurnId(),
	}
	return r.yield(event.Event{Time: e.GetTime().AsTime(), Payload: s}, nil)
}

// place is the author and the branch of an event; empty for the remote agent itself.
func (r *remote) place(e *troupev1.Event) (author, branch string) {
	path := strings.Split(cmp.Or(e.GetBranch(), e.GetAgent()), ".")
	if path[0] == r.target || path[0] == "" {
		path = path[1:]
	}
	if len(path) == 0 {
		return "", ""
	}
	return path[len(path)-1], r.branch + "." + strings.Join(path, ".")
}

// end tells how the remote turn of a session ended.
func (r *remote) end(done *troupev1.TurnResult, session string) error {
	r.result.Usage = r.usage.Add(wire.UsageFromProto(done.GetUsage()))
	out := event.TurnResult{Reason: event.Natural, Result: r.result}
	failed := grpcfailure.FromProto(done.GetFailure())
	if failed != nil && failed.Facts[failure.FactTrace] != "" { // the turn above will say its own there
		failed = failed.With("remote_trace_id", failed.Facts[failure.FactTrace])
	}
	switch {
	case failed != nil:
		out.Reason = event.Failed
	case done.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, done.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED:
		out.Reason, out.Result.InputRequired = event.InputRequired, true
	case r.result.Stopped:
		out.Reason = event.Stopped
	case r.result.MaxIterations:
		out.Reason = event.MaxIterations
	}
	out.Result.Untrusted = conversation.From("agent", r.target) // whatever it read, nobody here saw it
	out.Result.Agent, out.Result.Text, out.Result.Confidence = r.target, done.GetText(), done.Confidence
	if len(done.GetPending()) > 0 {
		out.Result.Text += " It is answered in session " + session + "."
	}
	if !r.yield(event.Event{Payload: out}, nil) || failed == nil {
		return nil
	}
	return r.failed(failed)
}

// failed is the failure of the remote turn, where its mode would be taken for one of the
// step above.
func (r *remote) failed(err *failure.Error) error {
	if !failure.Is(err, failure.Unknown, failure.Fenced, failure.TurnNotOpen, failure.Nondeterminism, failure.SessionDeleted, failure.BaseMismatch,
		failure.InstanceDraining, failure.SystemNetwork, failure.SystemTimeout, failure.UserCancelled, failure.AttemptsExhausted) {
		return err
	}
	return failure.Newf(failure.ResourceTool, "client.Agent", "agent %s failed: %s", r.target, err.Message).Because(err)
}

// payloadOf is what happened; nil: it is of the mesh, or of a session that is not ours.
func payloadOf(e *troupev1.Event) event.Payload {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TextDelta:
		return event.TextDelta{Text: p.TextDelta.GetText()}
	case *troupev1.Event_TextRetracted:
		return event.Warning{Reason: ReasonBegunAgain, Message: "the worker of agent " + e.GetAgent() + " was lost; what it said so far is void, and another goes on"}
	case *troupev1.Event_ModelCall:
		m := p.ModelCall
		return event.ModelCall{
			Model: m.GetModel(), Iteration: int(m.GetIteration()), ToolCalls: int(m.GetToolCalls()),
			Usage: wire.UsageFromProto(m.GetUsage()), Duration: m.GetDuration().AsDuration(),
			Finish: event.Finish(word(strings.TrimSuffix(m.GetFinish().String(), "UNSPECIFIED"), "FINISH_REASON_")),
		}
	case *troupev1.Event_ToolCallStarted:
		return event.ToolStarted{CallID: p.ToolCallStarted.GetCallId(), Tool: p.ToolCallStarted.GetTool(), Arguments: p.ToolCallStarted.GetArguments()}
	case *troupev1.Event_ToolProgress:
		told := p.ToolProgress
		return event.ToolProgress{CallID: told.GetCallId(), Tool: told.GetTool(), Message: told.GetMessage(), Fraction: told.Fraction}
	case *troupev1.Event_SubtaskStarted:
		s := p.SubtaskStarted
		return event.SubtaskStarted{
			Target: s.GetTarget(), Session: s.GetSessionId(), Request: s.GetRequestId(), Trace: s.GetTraceId(), Turn: s.GetTurnId(), CallID: s.GetCallId(),
		}
	case *troupev1.Event_ToolCallFinished:
		f := p.ToolCallFinished
		return event.ToolFinished{
			CallID: f.GetCallId(), Tool: f.GetTool(), Summary: f.GetSummary(), Duration: f.GetDuration().AsDuration(),
			Status: event.ToolStatus(word(f.GetStatus().String(), "TOOL_STATUS_")),
		}
	case *troupev1.Event_AgentMessage:
		if p.AgentMessage.GetText() == "" {
			return nil
		}
		return event.Message{Text: p.AgentMessage.GetText()}
	case *troupev1.Event_Thinking:
		return event.Thinking{Topic: event.Topic(word(p.Thinking.GetTopic().String(), "TOPIC_")), Text: p.Thinking.GetText()}
	case *troupev1.Event_Warning:
		return event.Warning{Reason: p.Warning.GetReason(), Message: p.Warning.GetMessage()}
	default:
		return nil
	}
}

// word is the name of a value of an enum, as package event writes it.
func word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
