// Package clitest provides a fake mesh for tests of commands. It runs in the process of the test and gives fixed
// answers.
package clitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Verdicts returns the verdict and the text of each answer in the latest request, keyed by call id.
func (m *Mesh) Verdicts() map[string]string {
	said := map[string]string{}
	_, answers := m.LastRequest()
	for _, a := range answers {
		said[a.GetId()] = strings.TrimPrefix(a.GetVerdict().String(), "CALL_VERDICT_") + " " + a.GetText()
	}
	return said
}

// Mesh is a fake mesh. The text of a request makes its agent send a mail or ask for a number. These tool calls
// then wait for input, as in a real mesh.
type Mesh struct {
	troupev1.UnimplementedOrchestratorServiceServer
	troupev1.UnimplementedSessionServiceServer
	Addr        string
	EndSlowTurn chan struct{} // the test closes it to end the turn "slow"
	sealingKeys *broker.Broker
	execute     func(ctx context.Context, args []string, term console.Terminal) int

	Mu       sync.Mutex
	Sessions map[string]*troupev1.Session
	requests []*troupev1.OrchestrateRequest
	Turns    map[string][]*troupev1.Event // keyed by session and request
}

// NewMesh starts a fake mesh that stops when the test ends.
func NewMesh(t *testing.T, execute func(context.Context, []string, console.Terminal) int) *Mesh {
	t.Helper()
	d := &Mesh{
		execute: execute, EndSlowTurn: make(chan struct{}), sealingKeys: broker.New("clerk-1"), Sessions: map[string]*troupev1.Session{},
		Turns: map[string][]*troupev1.Event{},
	}
	d.Addr = Serve(t, func(s grpc.ServiceRegistrar) {
		troupev1.RegisterOrchestratorServiceServer(s, d)
		troupev1.RegisterSessionServiceServer(s, d)
	})
	return d
}

// MailCall returns a pending call that needs an approval.
func MailCall(id string) *troupev1.PendingCall {
	return &troupev1.PendingCall{
		Id: id, CallId: "c" + id, Tool: "send_mail", Needs: troupev1.CallNeed_CALL_NEED_APPROVAL, Risk: "at_most_once",
		Arguments: "{\"to\":\"bob@example.com\",\"text\":\"\u202ehi\x1b[2J\"}", Reason: "Mails leave the house.", Until: timestamppb.New(time.Now().Add(time.Hour)),
	}
}

// NumberCall returns a pending call whose result the client must supply.
func NumberCall(id string) *troupev1.PendingCall {
	return &troupev1.PendingCall{Id: id, Tool: "ask_number", Needs: troupev1.CallNeed_CALL_NEED_RESULT, Risk: "read", Arguments: "{}"}
}

// credentialCall returns a pending call that needs a credential.
func (m *Mesh) credentialCall(session, id string) *troupev1.PendingCall {
	key, err := m.sealingKeys.CreateKey(session, "mailbox")
	if err != nil {
		panic(err) //nolint:forbidigo // a fake for tests, and a key is always made
	}
	return &troupev1.PendingCall{
		Id: id, CallId: "c" + id, Tool: "fetch", Needs: troupev1.CallNeed_CALL_NEED_AUTH, Risk: "read", Arguments: "{}", Until: timestamppb.New(key.Expires),
		Auth: &troupev1.PendingAuth{
			AuthId: key.ID, Name: "mailbox", Prompt: "The password of your mailbox.\x1b[2J", Url: "https://mail.example.org/\x1b[2J",
			PublicKey: key.Public, Expires: timestamppb.New(key.Expires),
		},
	}
}

// Orchestrate implements the RPC. The text of the request selects the events of the turn.
func (m *Mesh) Orchestrate(req *troupev1.OrchestrateRequest, out troupev1.OrchestratorService_OrchestrateServer) error {
	events, err := m.beginTurn(req)
	if err != nil {
		return grpcfailure.ToStatus(err)
	}
	for _, e := range events {
		if e.GetTurnResult() != nil && req.GetText() == "slow" {
			select {
			case <-m.EndSlowTurn:
			case <-out.Context().Done():
				return out.Context().Err()
			}
		}
		if err := out.Send(&troupev1.OrchestrateResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

// beginTurn returns the events of the turn with the request id of req. The first call with this id creates the
// turn.
func (m *Mesh) beginTurn(req *troupev1.OrchestrateRequest) ([]*troupev1.Event, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.requests = append(m.requests, req)
	key := req.GetSessionId() + " " + req.GetRequestId()
	if known := m.Turns[key]; known != nil {
		return known, nil
	}
	s := m.Sessions[req.GetSessionId()]
	if s == nil {
		s = &troupev1.Session{SessionId: req.GetSessionId(), UserId: req.GetUserId(), Created: timestamppb.Now()}
		m.Sessions[s.SessionId] = s
	}
	if s.GetUserId() != req.GetUserId() {
		return nil, failure.Newf(failure.NotFound, "desk", "there is no session %s", s.GetSessionId())
	}
	if req.GetText() == "reject" {
		return nil, failure.New(failure.SessionFull, "desk", "the session is full; begin a new one")
	}
	events := m.turnEvents(s, req)
	for i, e := range events {
		if e.GetTextDelta() == nil {
			e.Sequence = uint64(i + 1)
		}
		e.SessionId, e.TraceId, e.Turn = s.GetSessionId(), TraceID, s.GetTurns()+1
	}
	result := events[len(events)-1].GetTurnResult()
	s.Turns++
	s.LastActivity, s.LastTraceId = timestamppb.Now(), TraceID
	s.Pending, s.WaitingTurnId, s.State = result.GetPending(), "", troupev1.SessionState_SESSION_STATE_READY
	if result.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED {
		s.State = troupev1.SessionState_SESSION_STATE_INPUT_REQUIRED
	}
	if result.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED {
		s.State = troupev1.SessionState_SESSION_STATE_AUTH_REQUIRED
	}
	if len(s.GetPending()) > 0 {
		s.WaitingTurnId = events[0].GetTurnStarted().GetTurnId()
	}
	m.Turns[key] = events
	return events, nil
}

func (m *Mesh) turnEvents(s *troupev1.Session, req *troupev1.OrchestrateRequest) []*troupev1.Event {
	events := []*troupev1.Event{{Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{TurnId: fmt.Sprint("t",
		s.GetTurns()+1), Text: req.GetText(), Answers: req.GetAnswers().GetAnswers()}}}}
	ends := func(result *troupev1.TurnResult) []*troupev1.Event {
		result.Agent, result.Duration = "clerk", durationpb.New(time.Millisecond)
		for _, p := range result.GetPending() {
			events = append(events, &troupev1.Event{
				Step: 1, Agent: "clerk",
				Payload: &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: p}},
			})
			result.Outcome, result.Text = troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, "A call waits."
			if p.GetAuth() != nil {
				result.Outcome = troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED
			}
		}
		return append(events, &troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: result}})
	}
	id := func(number int) string { return pendingcall.ID(int(s.GetTurns())+1, 1, number) }
	done := troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED
	switch text := req.GetText(); {
	case text == "mail":
		return ends(&troupev1.TurnResult{Pending: []*troupev1.PendingCall{MailCall(id(2))}})
	case text == "mails":
		return ends(&troupev1.TurnResult{Pending: []*troupev1.PendingCall{MailCall(id(2)), MailCall(id(3)), NumberCall(id(4))}})
	case text == "number":
		return ends(&troupev1.TurnResult{Pending: []*troupev1.PendingCall{NumberCall(id(2))}})
	case text == "fetch":
		return ends(&troupev1.TurnResult{Pending: []*troupev1.PendingCall{m.credentialCall(s.GetSessionId(), id(2))}})
	case text == "what?":
		return ends(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, Text: "What do you mean?"})
	case text == "fail":
		return ends(&troupev1.TurnResult{
			Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED,
			Failure: grpcfailure.ToProto(failure.New(failure.ResourceTool, "desk", "the printer burns")),
		})
	case req.GetAnswers() == nil:
		events = append(events,
			&troupev1.Event{
				Step: 1, Agent: "clerk",
				Payload: &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{CallId: "c1", Tool: "look", Arguments: `{"at":"it"}`}},
			},
			&troupev1.Event{Step: 1, Agent: "clerk", Payload: &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
				CallId: "c1", Tool: "look", Status: troupev1.ToolStatus_TOOL_STATUS_SUCCESS, Summary: "seen\x1b[2J", Duration: durationpb.New(2 * time.Millisecond),
			}}},
			&troupev1.Event{Step: 1, Agent: "clerk", Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "You said "}}},
			&troupev1.Event{Step: 1, Agent: "clerk", Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text + ".\x1b]0;x\a"}}})
		return ends(&troupev1.TurnResult{Outcome: done, Text: "You said " + text + ".\x1b]0;x\a"})
	}
	said := map[string]*troupev1.CallAnswer{}
	var texts []string
	for _, a := range req.GetAnswers().GetAnswers() {
		said[a.GetId()] = a
		texts = append(texts, render.Answer(a))
		if a.GetVerdict() == troupev1.CallVerdict_CALL_VERDICT_STOP {
			return ends(&troupev1.TurnResult{Outcome: done, Text: "Stopped."})
		}
	}
	var left []*troupev1.PendingCall
	for _, p := range s.GetPending() {
		if a := said[p.GetId()]; a.GetSealed() != nil {
			_, v, err := m.sealingKeys.Open(p.GetAuth().GetAuthId(), s.GetSessionId(), a.GetSealed())
			texts = append(texts, fmt.Sprintf("%q %v", v.Reveal(), err))
		}
		if said[p.GetId()] == nil {
			p = proto.CloneOf(p)
			_, place, _ := strings.Cut(p.GetId(), "-")
			p.Id = fmt.Sprintf("%d-%s", s.GetTurns()+1, place) // a pending call gets a new id in every turn
			left = append(left, p)
		}
	}
	return ends(&troupev1.TurnResult{Outcome: done, Text: "Heard " + strings.Join(texts, "; "), Pending: left})
}

// ListAgents returns an empty list.
func (m *Mesh) ListAgents(context.Context, *troupev1.ListAgentsRequest) (*troupev1.ListAgentsResponse, error) {
	return &troupev1.ListAgentsResponse{}, nil
}

// GetSession returns the session with the requested id.
func (m *Mesh) GetSession(_ context.Context, req *troupev1.GetSessionRequest) (*troupev1.GetSessionResponse, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if s := m.Sessions[req.GetSessionId()]; s != nil {
		return &troupev1.GetSessionResponse{Session: proto.CloneOf(s)}, nil
	}
	return nil, grpcfailure.ToStatus(failure.Newf(failure.NotFound, "desk", "there is no session %s", req.GetSessionId()))
}

// ListSessions returns the sessions in two pages, without their pending calls.
func (m *Mesh) ListSessions(_ context.Context, req *troupev1.ListSessionsRequest) (*troupev1.ListSessionsResponse, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	resp, page := &troupev1.ListSessionsResponse{NextPageToken: "more"}, []string{"s1", "s2"}
	if req.GetPageToken() != "" {
		resp.NextPageToken, page = "", []string{"s3"}
	}
	for _, id := range page {
		if s := m.Sessions[id]; s != nil {
			s = proto.CloneOf(s)
			s.Pending = nil
			resp.Sessions = append(resp.Sessions, s)
		}
	}
	return resp, nil
}

// ListMessages returns the same two messages for every session.
func (m *Mesh) ListMessages(context.Context, *troupev1.ListMessagesRequest) (*troupev1.ListMessagesResponse, error) {
	said := func(role troupev1.Role, author, text string) *troupev1.Message {
		return &troupev1.Message{Role: role, Author: author, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: text}}}}
	}
	return &troupev1.ListMessagesResponse{Messages: []*troupev1.Message{
		said(troupev1.Role_ROLE_USER, "", "Good\nmorning\x1b[2J"), said(troupev1.Role_ROLE_ASSISTANT, "clerk", "And to you."),
	}}, nil
}

// GetSessionState returns an empty state.
func (m *Mesh) GetSessionState(context.Context, *troupev1.GetSessionStateRequest) (*troupev1.GetSessionStateResponse, error) {
	return &troupev1.GetSessionStateResponse{}, nil
}

// ListArtifacts returns an empty list.
func (m *Mesh) ListArtifacts(context.Context, *troupev1.ListArtifactsRequest) (*troupev1.ListArtifactsResponse, error) {
	return &troupev1.ListArtifactsResponse{}, nil
}

// GetTrace returns a trace whose result comes from the agent clerk.
func (m *Mesh) GetTrace(context.Context, *troupev1.GetTraceRequest) (*troupev1.GetTraceResponse, error) {
	return &troupev1.GetTraceResponse{Trace: &troupev1.Trace{Result: &troupev1.TurnResult{Agent: "clerk"}}}, nil
}

// LastRequest returns the latest Orchestrate request and the answers that it contains.
func (m *Mesh) LastRequest() (*troupev1.OrchestrateRequest, []*troupev1.CallAnswer) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	req := m.requests[len(m.requests)-1]
	return req, req.GetAnswers().GetAnswers()
}

// RunCommand runs a command against the mesh with the given standard input. It requires the exit code and returns
// the standard output and the standard error.
func (m *Mesh) RunCommand(t *testing.T, code int, input string, args ...string) (stdout, stderr string) {
	t.Helper()
	t.Setenv("TROUPE_ADDR", m.Addr)
	var out, err bytes.Buffer
	require.Equal(t, code, m.execute(t.Context(), args, console.Terminal{In: io.Reader(strings.NewReader(input)), Out: &out, Err: &err}), "%s%s", &out, &err)
	require.NotContains(t, out.String()+err.String(), "\x1b", "what a model says does not reach the terminal as it is")
	return out.String(), err.String()
}
