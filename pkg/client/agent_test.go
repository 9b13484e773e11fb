package client_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// fakeMesh answers each request with the events that the test sets.
type fakeMesh struct {
	troupev1.UnimplementedOrchestratorServiceServer
	events   []*troupev1.Event
	sendLast chan struct{}                                                 // closing it sends the turn result (nil means at once)
	answer   func(*troupev1.OrchestrateRequest) ([]*troupev1.Event, error) // returns the events for a request (nil means events)

	mu        sync.Mutex
	requests  []*troupev1.OrchestrateRequest
	cancelled []string // ids of the cancelled traces
	spans     []string // W3C trace ids of the requests
}

func (m *fakeMesh) CancelTrace(_ context.Context, req *troupev1.CancelTraceRequest) (*troupev1.CancelTraceResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancelled = append(m.cancelled, req.GetTraceId())
	return &troupev1.CancelTraceResponse{}, nil
}

func (m *fakeMesh) Orchestrate(req *troupev1.OrchestrateRequest, stream troupev1.OrchestratorService_OrchestrateServer) error {
	m.mu.Lock()
	m.requests = append(m.requests, req)
	m.spans = append(m.spans, trace.SpanContextFromContext(stream.Context()).TraceID().String())
	m.mu.Unlock()
	events := m.events
	if m.answer != nil {
		var err error
		if events, err = m.answer(req); err != nil {
			return err
		}
	}
	sequence := uint64(0)
	for _, e := range events {
		if e.GetTurnResult() != nil && m.sendLast != nil {
			select {
			case <-m.sendLast:
			case <-stream.Context().Done():
				return nil
			}
		}
		e.TraceId, e.Time, e.Sequence = traceID, timestamppb.Now(), 0
		if e.GetTextDelta() == nil && e.GetToolProgress() == nil {
			sequence++
			e.Sequence = sequence
		}
		if err := stream.Send(&troupev1.OrchestrateResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

// serveMesh serves m until the test ends and returns a client that is connected to it.
func serveMesh(t testing.TB, m *fakeMesh) *client.Client {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conn, err := rpc.Dial(lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{})
	require.NoError(t, err)
	troupev1.RegisterOrchestratorServiceServer(server, m)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-served)
	})
	return client.New(conn)
}

func withAuthor(name, branch string, e *troupev1.Event) *troupev1.Event {
	e.Agent, e.Branch = name, branch
	return e
}

func textDelta(text string) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}}}
}

func turnResult(result *troupev1.TurnResult) *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: result}}
}

// flowEvents returns the events of a remote agent that is a flow.
func flowEvents() []*troupev1.Event {
	return []*troupev1.Event{
		{SessionId: "theirs", Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{RequestId: "sub-1", TurnId: "t-1"}}},
		withAuthor("research", "research.finder", &troupev1.Event{Payload: &troupev1.Event_ToolProgress{ToolProgress: &troupev1.ToolProgress{
			CallId: "0",
			Tool:   "search", Message: "half",
		}}}),
		withAuthor("research", "research.finder",
			&troupev1.Event{Payload: &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{
				CallId: "1", Tool: "search",
				Arguments: "{}",
			}}}),
		withAuthor("research", "research.finder", &troupev1.Event{Payload: &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
			CallId: "1", Tool: "search", Status: troupev1.ToolStatus_TOOL_STATUS_SUCCESS, Summary: "found", Duration: durationpb.New(time.Second),
		}}}),
		withAuthor("research", "", &troupev1.Event{Payload: &troupev1.Event_Thinking{Thinking: &troupev1.Thinking{
			Topic: troupev1.Topic_TOPIC_PLAN,
			Text:  "hm",
		}}}),
		withAuthor("research", "", &troupev1.Event{Payload: &troupev1.Event_Custom{Custom: &troupev1.CustomEvent{Name: "found", Data: "[1]"}}}),
		withAuthor("research", "", textDelta("I fou")),
		withAuthor("research", "", &troupev1.Event{Payload: &troupev1.Event_TextRetracted{TextRetracted: &troupev1.TextRetracted{}}}),
		withAuthor("research", "", textDelta("I found it.")),
		withAuthor("research", "", &troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{
			Model: "m", Iteration: 1,
			Usage: &troupev1.Usage{InputTokens: 3, ModelCalls: 1},
		}}}),
		withAuthor("research", "", &troupev1.Event{Payload: &troupev1.Event_AgentMessage{AgentMessage: &troupev1.AgentMessage{StateKeys: []string{"theirs"}}}}),
		withAuthor("research", "", &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: "CAREFUL", Message: "…"}}}),
		withAuthor("research", "", &troupev1.Event{Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: &troupev1.StepResult{
			Iterations: 2, ToolsCalled: []string{"search"}, Observations: []string{"Used tool: search\nfound"},
		}}}}),
		turnResult(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, Text: "I found it.", Usage: &troupev1.Usage{
			InputTokens: 9,
			ModelCalls:  2,
		}}),
	}
}

// parentTraceID is the trace of the turn that calls the remote agent.
const parentTraceID = "11111111111111111111111111111111"

func newStep() execution.Step {
	return execution.Step{
		TraceID: parentTraceID, SessionID: "session-1", User: "alice", TurnID: "turn-1", Number: 1, Attempt: 1, Agent: "team",
		History: []conversation.Message{conversation.User("Where is it?")},
	}
}

// runAgent runs an agent to its end. It returns its events as "author branch payload", and its result.
func runAgent(ctx context.Context, a *agent.Agent, inv agent.Invocation) (told []string, done event.TurnResult, err error) {
	for e, failed := range a.Run(ctx, inv) {
		if failed != nil {
			return told, done, failed
		}
		switch p := e.Payload.(type) {
		case event.TurnResult:
			done = p
		case event.UserInput, event.MessageAppended, event.Answer:
		case event.ModelCall:
			told = append(told, fmt.Sprintf("%s %s %s %d %d", e.Author, e.Branch, p.Model, p.Iteration, p.Usage.InputTokens))
		default:
			told = append(told, fmt.Sprintf("%s %s %+v", e.Author, e.Branch, p))
		}
	}
	return told, done, nil
}

// Req: LP-18
func TestAgent_ForwardsEventsAndResultOfRemoteAgent(t *testing.T) {
	m := &fakeMesh{events: flowEvents()}
	c := serveMesh(t, m)
	remote, err := c.Agent("research", agent.Config{Description: "Finds things."})
	require.NoError(t, err)
	before, err := agent.New(agent.Config{Name: "before", Model: scripted.New(scripted.Say("It is red."), scripted.Say("It is red."))})
	require.NoError(t, err)
	team, err := flow.Sequence(agent.Config{Name: "team"}, before, remote)
	require.NoError(t, err)
	auth := execution.Auth{Actor: "alice", Credentials: map[string]secret.Value{"github": secret.New("token-1")}}

	for attempt := 1; attempt <= 2; attempt++ { // the second belongs to a successor
		inv := agent.Invocation{Step: newStep()}
		inv.Step.Attempt = attempt
		told, done, err := runAgent(execution.WithAuth(t.Context(), auth), team, inv)
		require.NoError(t, err)
		require.Equal(t, []string{
			"research team.research {Target:research Session:theirs Request:sub-1 Trace:" + traceID + " Turn:t-1 CallID:}",
			"finder team.research.finder {CallID:0 Tool:search Message:half Fraction:<nil>}",
			"finder team.research.finder {CallID:1 Tool:search Arguments:{}}",
			"finder team.research.finder {CallID:1 Tool:search Arguments: Iteration:0 Status:success Result: Summary:found ErrorType: Duration:1s Replayed:false}",
			"research team.research {Topic:plan Text:hm}",
			fmt.Sprintf("research team.research {Name:found Data:%v}", []byte("[1]")),
			"research team.research {Text:I fou}",
			"research team.research {Reason:" + client.ReasonRestarted + " Message:the worker of agent research was lost; what it said so far is void, and another goes on Tool:}",
			"research team.research {Text:I found it.}",
			"research team.research m 1 3",
			"research team.research {Reason:CAREFUL Message:… Tool:}",
		}, told[2:])
		require.Empty(t, cmp.Diff(execution.Result{
			Step: 1, Agent: "team", Text: "I found it.", Observations: []string{"Used tool: search\nfound"}, ToolsCalled: []string{"search"},
			Iterations: 3, Usage: execution.Usage{InputTokens: 9, ModelCalls: 3}, Confidence: done.Result.Confidence,
			Untrusted: "agent research",
		}, done.Result))
	}

	require.Len(t, m.requests, 2)
	first, second := m.requests[0], m.requests[1]
	require.Equal(t, "research", first.GetTarget())
	require.Contains(t, first.GetText(), "Where is it?")
	require.Contains(t, first.GetText(), "What before said:\n\nIt is red.")
	require.Equal(t, "alice", first.GetUserId())
	require.Equal(t, "token-1", first.GetAuth().GetCredentials()["github"])
	require.Equal(t, troupev1.OnBusy_ON_BUSY_ENQUEUE, first.GetOnBusy())
	require.InDelta(t, agent.DefaultTimeout.Seconds(), first.GetTimeout().AsDuration().Seconds(), 30)
	require.Equal(t, []string{first.GetSessionId(), first.GetRequestId(), first.GetText()}, []string{
		second.GetSessionId(), second.GetRequestId(),
		second.GetText(),
	})
	require.Empty(t, cmp.Diff(&troupev1.Parent{TraceId: parentTraceID, TurnId: "turn-1", Step: 1, Call: 2, RootTraceId: parentTraceID}, first.GetParent(),
		protocmp.Transform()))
	require.Regexp(t, `^[A-Za-z0-9_-]{1,64}$`, first.GetSessionId())
	require.NotEqual(t, "session-1", first.GetSessionId())
}

func TestAgent_KeepsSessionAcrossTurnsAndRunsOncePerRound(t *testing.T) {
	m := &fakeMesh{events: flowEvents()}
	remote, err := serveMesh(t, m).Agent("research", agent.Config{})
	require.NoError(t, err)
	rounds, err := flow.Repeat(agent.Config{Name: "rounds"}, 2, remote)
	require.NoError(t, err)
	for _, turn := range []string{"turn-1", "turn-2"} {
		inv := agent.Invocation{Step: newStep()}
		inv.Step.TurnID = turn
		_, _, err = runAgent(t.Context(), rounds, inv)
		require.NoError(t, err)
	}
	sessions, requests := map[string]bool{}, map[string]bool{}
	for _, r := range m.requests {
		sessions[r.GetSessionId()], requests[r.GetRequestId()] = true, true
	}
	require.Len(t, sessions, 1)
	require.Len(t, requests, 4)
}

func TestAgent_ReportsOutcomeOfRemoteTurn(t *testing.T) {
	failed := func(mode troupev1.FailureMode) *troupev1.TurnResult {
		return &troupev1.TurnResult{
			Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Usage: &troupev1.Usage{InputTokens: 9, ModelCalls: 1},
			Failure: &troupev1.Failure{Mode: mode, Message: "it is down"},
		}
	}
	for name, tc := range map[string]struct {
		result *troupev1.TurnResult
		reason event.Reason
		mode   failure.Mode
	}{
		"a question": {
			&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, Text: "Which one?"},
			event.InputRequired, "",
		},
		"a failure":                   {failed(troupev1.FailureMode_FAILURE_MODE_RESOURCE_API), event.Failed, failure.ResourceAPI},
		"a failure that is not ours":  {failed(troupev1.FailureMode_FAILURE_MODE_FENCED), event.Failed, failure.ResourceTool},
		"cancelled by another client": {failed(troupev1.FailureMode_FAILURE_MODE_USER_CANCELLED), event.Failed, failure.ResourceTool},
		// only the remote turn is quarantined, not its parent
		"its workers are lost": {failed(troupev1.FailureMode_FAILURE_MODE_ATTEMPTS_EXHAUSTED), event.Failed, failure.ResourceTool},
	} {
		t.Run(name, func(t *testing.T) {
			remote, err := serveMesh(t, &fakeMesh{events: []*troupev1.Event{turnResult(tc.result)}}).Agent("research", agent.Config{})
			require.NoError(t, err)
			_, done, err := runAgent(t.Context(), remote, agent.Invocation{Step: newStep()})
			require.Equal(t, tc.mode != "", err != nil)
			require.Equal(t, tc.mode, failure.ModeOf(err))
			require.Equal(t, tc.reason, done.Reason)
			require.Equal(t, tc.reason == event.InputRequired, done.Result.InputRequired)
			require.Equal(t, tc.result.GetText(), done.Result.Text)
			require.Equal(t, tc.result.GetUsage().GetInputTokens(), done.Result.Usage.InputTokens)
		})
	}
}

// Pending calls of a remote session become a question that names the session. They are not pending calls of this
// step, because the user answers them in the remote session.
func TestAgent_PendingCallsBecomeAQuestion(t *testing.T) {
	m := &fakeMesh{events: []*troupev1.Event{
		withAuthor("research", "",
			&troupev1.Event{Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: &troupev1.PendingCall{Id: "1-1-2"}}}}),
		turnResult(&troupev1.TurnResult{
			Outcome: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, Text: "send_mail waits for an approval.",
			Pending: []*troupev1.PendingCall{{Id: "1-1-2", Tool: "send_mail"}},
		}),
	}}
	remote, err := serveMesh(t, m).Agent("research", agent.Config{})
	require.NoError(t, err)
	told, done, err := runAgent(t.Context(), remote, agent.Invocation{Step: newStep()})
	require.NoError(t, err)
	require.Empty(t, told)
	require.Equal(t, event.InputRequired, done.Reason)
	require.True(t, done.Result.InputRequired)
	require.Empty(t, done.Result.Pending)
	require.Equal(t, "send_mail waits for an approval. It is answered in session "+m.requests[0].GetSessionId()+".", done.Result.Text)
}

func TestAgent_RejectsInvalidNameAndSelfCall(t *testing.T) {
	c := serveMesh(t, &fakeMesh{})
	_, err := c.Agent("", agent.Config{Name: "a"})
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
	_, err = c.Agent("Not a name", agent.Config{})
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
	itself, err := c.Agent("team", agent.Config{Name: "other"})
	require.NoError(t, err)
	_, _, err = runAgent(t.Context(), itself, agent.Invocation{Step: newStep()})
	require.True(t, failure.Is(err, failure.AgentLogic), "%v", err)
	require.ErrorContains(t, err, "would ask itself")
}

// This flow runs a remote agent and then a local one.
func ExampleClient_Agent() {
	conn, err := rpc.Dial("127.0.0.1:7400", telemetry.Discard())
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	researchEvents, err := client.New(conn).Agent("research", agent.Config{Description: "Finds things."})
	if err != nil {
		return
	}
	writer, err := agent.New(agent.Config{Name: "writer", Model: scripted.New(scripted.Say("It is there."))})
	if err != nil {
		return
	}
	team, err := flow.Sequence(agent.Config{Name: "team"}, researchEvents, writer)
	if err != nil {
		return
	}
	fmt.Fprintln(os.Stdout, team.Name()) // pass the agent to worker.Main
	// Output: team
}

// An agent that is called as a tool publishes no events of its own. The event that names the remote turn is still
// published, at any depth.
func TestAgent_CalledAsToolReportsSubtask(t *testing.T) {
	m := &fakeMesh{events: flowEvents()}
	remote, err := serveMesh(t, m).Agent("research", agent.Config{Description: "Finds things."})
	require.NoError(t, err)
	asTool := func(a *agent.Agent) []tool.Tool {
		made, err := flow.AsTool(a, flow.AsToolConfig{})
		require.NoError(t, err)
		return []tool.Tool{made}
	}
	call := func(id, name string) scripted.Reply {
		return scripted.Call(conversation.ToolCall{ID: id, Name: name, Arguments: `{"request": "find it"}`})
	}
	aide, err := agent.New(agent.Config{Name: "aide", Model: scripted.New(call("inner", "research"), scripted.Say("There.")), Tools: asTool(remote)})
	require.NoError(t, err)
	team, err := agent.New(agent.Config{Name: "team", Model: scripted.New(call("outer", "aide"), scripted.Say("There.")), Tools: asTool(aide)})
	require.NoError(t, err)
	var subtasks []event.Event
	_, err = team.Execute(t.Context(), agent.Invocation{Step: newStep()}, func(e event.Event) error {
		if e.Kind() == (event.SubtaskStarted{}).Kind() {
			subtasks = append(subtasks, e)
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, subtasks, 1)
	require.Equal(t, "team", subtasks[0].Author)
	require.Equal(t, event.SubtaskStarted{
		Target: "research", Session: "theirs", Request: "sub-1", Trace: traceID, Turn: "t-1", CallID: "outer",
	}, subtasks[0].Payload)
	require.Equal(t, parentTraceID, m.requests[0].GetParent().GetTraceId())
}
