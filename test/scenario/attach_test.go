package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/test/rig"
)

// The orchestrator is lost while a model reads an attached file. The turn still completes with a repeated model
// call that gets the file again, and the file is stored once. The next turn gets only the file's name.
func TestAttachment_IsStoredOnceDespiteFaults(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{RouteWait: 3 * time.Second, DrainTimeout: time.Second})
	asked := make(chan struct{})
	model := scripted.New(
		scripted.Reply{Deltas: []string{"It says no"}, Asked: asked, Wait: make(chan struct{})},
		scripted.Say("It says north."), scripted.Say("Still north."))
	m.HostWorker("reader", rig.Program{Instance: "reader-1", DrainTimeout: time.Second, NewAgent: func() (*agent.Agent, error) {
		return agent.New(agent.Config{Name: "reader", Model: model})
	}})
	m.Await("the agent is ready", func() bool { return len(idleInstances(t, m, "reader")) == 1 })

	req := textRequest("Where does it point?")
	req.Target = "reader"
	compass := []byte("\x89PNG the needle")
	req.Parts = []*troupev1.Part{{Content: &troupev1.Part_Blob{Blob: &troupev1.Blob{Name: "compass.png", Data: compass}}}}
	ended := make(chan []*troupev1.Event, 1)
	go func() {
		events, _ := collectEvents(t.Context(), m, req)
		ended <- events
	}()
	select {
	case <-asked:
	case events := <-ended:
		require.FailNow(t, "the model was not asked", "%v", events)
	}
	m.Restart(rig.Orchestrator)
	events := <-ended
	require.NotEmpty(t, events)
	require.Equal(t, "It says north.", turnResult(events).GetText())
	started := events[0].GetTurnStarted().GetAttachments()
	require.Len(t, started, 1)
	require.EqualValues(t, 1, started[0].GetArtifact().GetVersion())
	require.Empty(t, started[0].GetData())

	again := textRequest("And now?")
	again.Target, again.SessionId = "reader", req.GetSessionId()
	require.Equal(t, "Still north.", turnResult(runTurn(t, m, again)).GetText())

	seen := model.Requests()
	require.Len(t, seen, 3)
	for _, r := range seen[:2] {
		a := r.Messages[len(r.Messages)-1].Attachments
		require.Len(t, a, 1)
		require.Equal(t, compass, a[0].Data)
	}
	require.Equal(t, seen[0].Messages[0].Attachments[0].Name, seen[2].Messages[0].Attachments[0].Name)
	require.Empty(t, seen[2].Messages[0].Attachments[0].Data)

	all, err := m.Sessions.ListArtifacts(t.Context(), &troupev1.ListArtifactsRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	require.Len(t, all.GetArtifacts(), 1)
	said, err := m.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	first := wire.MessageFromProto(said.GetMessages()[0])
	require.Equal(t, 1, first.Attachments[0].Version)
	require.Empty(t, first.Attachments[0].Data)
	require.Len(t, said.GetMessages(), 4)
}
