package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/test/rig"
)

// These tests cover behaviour that the mesh defines itself and that other frameworks leave to their runner or
// agent protocol (ADR 0015).
func TestTurnRules_InProcess(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{RouteWait: 3 * time.Second})
	desk := &inspectedAgent{mesh: m}
	m.HostWorker("desk", rig.Program{Instance: "desk-1", DrainTimeout: time.Second, NewAgent: desk.newAgent})
	m.HostWorker("everything", rig.Program{Instance: "everything-1", DrainTimeout: time.Second, NewAgent: newEventfulAgent})
	m.Await("both agents are ready", func() bool {
		return len(idleInstances(t, m, "desk")) == 1 && len(idleInstances(t, m, "everything")) == 1
	})
	t.Run("TurnIsStoredBeforeItIsObserved", func(t *testing.T) { turnIsStoredBeforeItIsObserved(t, m, desk) })
	t.Run("EventsNameTheirSessionTurnAndTask", func(t *testing.T) { eventsNameTheirSessionTurnAndTask(t, m) })
}

// inspectedAgent is an agent whose plugin records the input that the plugin sees.
type inspectedAgent struct {
	mesh               *rig.Mesh
	model              *scripted.Model
	lastStoredMessages []string // the last message of the session when the plugin saw the user's

	receivedFiles []string // the files that came with it, as artifacts and as the model sees them
}

func (i *inspectedAgent) newAgent() (*agent.Agent, error) {
	i.model = scripted.New(scripted.Say("One."), scripted.Say("Two."))
	return agent.New(agent.Config{Name: "desk", Model: i.model, Plugins: []hook.Plugin{{Name: "keeper", Handlers: []hook.Handler{
		hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
			if turn.Info().Prompt == "Are you open?" {
				return "We are closed.", nil
			}
			return "", nil
		}),
		hook.AfterUserInput(func(ctx context.Context, turn *hook.Turn) error {
			listed, err := i.mesh.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{SessionId: turn.Info().Session})
			if err != nil {
				return err
			}
			last := listed.GetMessages()[len(listed.GetMessages())-1]
			i.lastStoredMessages = append(i.lastStoredMessages, last.GetRole().String()+" "+wire.MessageFromProto(last).Text)
			if strings.HasPrefix(turn.Info().Prompt, "break") {
				return errors.New("it broke")
			}
			for _, a := range turn.Messages()[len(turn.Messages())-1].Attachments {
				content, mediaType, err := turn.Memory().LoadArtifact(ctx, a.Name, a.Version)
				if err != nil {
					return err
				}
				i.receivedFiles = append(i.receivedFiles, fmt.Sprintf("%s %s %s %s", a.Name, mediaType, content, a.Data))
			}
			for _, name := range []string{"inbound.txt", "user:latest.txt"} {
				if _, err := turn.Memory().SaveArtifact(ctx, name, "text/plain", []byte(turn.Info().Prompt)); err != nil {
					return err
				}
			}
			return nil
		}),
	}}}})
}

// The first turn of a session creates it, unless the session was deleted or belongs to another user. The mesh
// stores the user's message before a plugin sees it. Files in the message are then artifacts, and a plugin may
// store other input as artifacts. A reply before the run ends the run early. Each event is stored before it is
// delivered. A turn has exactly one result, however it ends.
// Req: AD-25
func turnIsStoredBeforeItIsObserved(t *testing.T, m *rig.Mesh, d *inspectedAgent) {
	id := uuid.NewString()
	say := func(text string) *troupev1.OrchestrateRequest {
		return &troupev1.OrchestrateRequest{
			Input: &troupev1.OrchestrateRequest_Text{Text: text}, SessionId: id, RequestId: uuid.NewString(), Target: "desk", UserId: "alice",
		}
	}
	// asked runs a turn to its end. At each event it checks that the event is already stored.
	asked := func(text string, files ...*troupev1.Part) *troupev1.TurnResult {
		var events []*troupev1.Event
		req := say(text)
		req.Parts = files
		for e, err := range m.Turn(t.Context(), req) {
			require.NoError(t, err)
			events = append(events, e)
			if e.GetSequence() > 0 {
				stored, err := m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: e.GetTraceId()})
				require.NoError(t, err)
				require.GreaterOrEqual(t, stored.GetTrace().GetLastSequence(), e.GetSequence())
			}
		}
		checkTrace(t, events)
		return turnResult(events)
	}
	_, err := m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: id})
	require.True(t, failure.Is(grpcfailure.FromStatus("", err), failure.NotFound), "%v", err)

	require.Equal(t, "One.", asked("Hello").GetText())
	require.Equal(t, "We are closed.", asked("Are you open?").GetText())
	require.Len(t, d.model.Requests(), 1, "the run ended early")
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_FAILED, asked("break it").GetOutcome())
	require.Equal(t, "Two.", asked("Are you there?", &troupev1.Part{Content: &troupev1.Part_Blob{Blob: &troupev1.Blob{
		Name: "map.txt", MediaType: "text/plain", Data: []byte("north"),
	}}}).GetText())
	require.Equal(t, []string{"map.txt text/plain north north"}, d.receivedFiles)
	require.Equal(t, []string{"ROLE_USER Hello", "ROLE_USER break it", "ROLE_USER Are you there?"}, d.lastStoredMessages)

	kept, err := m.Sessions.ListArtifacts(t.Context(), &troupev1.ListArtifactsRequest{SessionId: id})
	require.NoError(t, err)
	require.Len(t, kept.GetArtifacts(), 5)
	require.Equal(t, "map.txt", kept.GetArtifacts()[2].GetName())
	for i, a := range slices.Delete(kept.GetArtifacts(), 2, 3) {
		require.Equal(t, []string{"inbound.txt", "user:latest.txt"}[i/2], a.GetName())
		require.EqualValues(t, i%2+1, a.GetVersion())
	}

	sibling := say("Are you open?")
	sibling.SessionId = uuid.NewString()
	require.Equal(t, "We are closed.", turnResult(runTurn(t, m, sibling)).GetText())
	shared, err := m.Sessions.ListArtifacts(t.Context(), &troupev1.ListArtifactsRequest{SessionId: sibling.GetSessionId()})
	require.NoError(t, err)
	require.Len(t, shared.GetArtifacts(), 2, "the artifacts of alice")

	others := say("Hello")
	others.UserId = "bob"
	require.True(t, failure.Is(requireRejected(t, m, others), failure.NotFound))
	_, err = m.Sessions.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: id})
	require.NoError(t, err)
	require.True(t, failure.Is(requireRejected(t, m, say("Hello")), failure.SessionDeleted))
}

// The events of a turn contain everything that a bridge to another protocol, such as A2A, needs. Each event names
// its session, turn, trace and time. Events of sub-agents name their branch, and sub-agents add no messages to the
// session.
func eventsNameTheirSessionTurnAndTask(t *testing.T, m *rig.Mesh) {
	kinds := map[string]bool{}
	var outcomes []troupev1.TurnOutcome
	look := func(events []*troupev1.Event) {
		outcomes = append(outcomes, turnResult(events).GetOutcome())
		for _, e := range events {
			require.Equal(t, events[0].GetSessionId(), e.GetSessionId())
			require.Equal(t, events[0].GetTraceId(), e.GetTraceId())
			require.Equal(t, events[0].GetTurn(), e.GetTurn())
			require.NotEmpty(t, e.GetSessionId())
			require.Positive(t, e.GetTurn())
			require.False(t, e.GetTime().AsTime().IsZero())
			require.NotZero(t, e.GetStage())
			if step := e.GetStep(); step > 0 {
				require.NotEmpty(t, e.GetAgent())
				require.Positive(t, e.GetAttempt())
			}
			message := e.ProtoReflect()
			kinds[string(message.WhichOneof(message.Descriptor().Oneofs().ByName("payload")).Name())] = true
		}
	}
	req := textRequest("What is it like?")
	req.Target = "everything"
	req.UserId = "alice"
	all := runTurn(t, m, req)
	look(all)
	below, subtasks := map[string]bool{}, 0
	for _, e := range all {
		below[e.GetBranch()] = true
		if e.GetToolCallStarted().GetTool() == "aide" {
			subtasks++
		}
	}
	require.True(t, below["everything.finder"] && below["everything.writer"], "%v", below)
	require.Equal(t, 1, subtasks)
	said, err := m.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	for _, message := range said.GetMessages() {
		require.NotEqual(t, "aide", message.GetAuthor())
		require.NotContains(t, wire.MessageFromProto(message).Text, "It is far.")
	}

	again := textRequest("And now?") // the script has no reply to it
	again.Target = "everything"
	look(runTurn(t, m, again))
	look(runTurn(t, m, textRequest("Tell me about it")))
	require.Equal(t, []troupev1.TurnOutcome{
		troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, troupev1.TurnOutcome_TURN_OUTCOME_FAILED, troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED,
	}, outcomes)
	for _, kind := range []string{
		"turn_started", "plan", "routing_decision", "step_started", "step_finished", "text_delta", "model_call", "tool_call_started",
		"tool_call_finished", "agent_message", "thinking", "warning", "aggregate", "turn_result",
	} {
		require.True(t, kinds[kind], kind)
	}
}
