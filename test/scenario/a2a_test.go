package scenario

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	bridge "github.com/troupe-dev/troupe/internal/a2a"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
)

// a2aMesh is a mesh behind an A2A bridge, with the A2A client of another framework.
type a2aMesh struct {
	*gatedMesh
	url    string
	client *a2aclient.Client
}

// httpClient keeps no idle connection.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func TestA2A_InProcess(t *testing.T) {
	t.Parallel()
	s := &a2aMesh{gatedMesh: newGatedMesh(t, rig.StartInProcess(t, rig.Config{}))}
	s.HostWorker(rig.InputWorker(s.gate, inputagent.Name, 1))
	s.Await("the clerk is ready", func() bool { return len(idleInstances(t, s.Mesh, inputagent.Name)) == 1 })
	server := httptest.NewUnstartedServer(nil)
	s.url = "http://" + server.Listener.Addr().String()
	server.Config.Handler = bridge.New(bridge.Config{Client: s.Client, URL: s.url}).Handler()
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.client = s.connect(t, a2aclient.WithJSONRPCTransport(httpClient))
	for _, scene := range []struct {
		name string
		run  func(*testing.T, *a2aMesh)
	}{
		{"CardListsWorkflowsAndAgents", cardListsWorkflowsAndAgents},
		{"MessageCreatesOneTask", messageCreatesOneTask},
		{"TaskStreamsItsEvents", taskStreamsItsEvents},
		{"TaskEventsCoverTheWholeTurn", taskEventsCoverTheWholeTurn},
		{"CredentialIsGivenInItsTask", credentialIsGivenInItsTask},
		{"QuestionIsAnsweredInItsTask", questionIsAnsweredInItsTask},
		{"PendingCallIsAnsweredInItsTask", pendingCallIsAnsweredInItsTask},
		{"CancelledTaskIsCanceled", cancelledTaskIsCanceled},
		{"FailedTurnIsAFailedTask", failedTurnIsAFailedTask},
		{"BrokenStreamResumes", brokenStreamResumes},
		{"UnsupportedRequestsReturnTheirCode", unsupportedRequestsReturnTheirCode},
		{"PreviousVersionIsSupported", previousVersionIsSupported},
	} {
		t.Run(scene.name, func(t *testing.T) { scene.run(t, s) })
	}
}

// connect returns a client that is configured from the bridge's agent card.
func (a *a2aMesh) connect(t *testing.T, options ...a2aclient.FactoryOption) *a2aclient.Client {
	t.Helper()
	c, err := a2aclient.NewFactory(append([]a2aclient.FactoryOption{a2aclient.WithDefaultsDisabled()}, options...)...).CreateFromCard(t.Context(), a.card(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Destroy()) })
	return c
}

func (a *a2aMesh) card(t *testing.T) *a2a.AgentCard {
	t.Helper()
	card, err := agentcard.NewResolver(httpClient).Resolve(t.Context(), a.url)
	require.NoError(t, err)
	return card
}

// newTargetMessage returns a message to a workflow or an agent.
func newTargetMessage(text, target string) *a2a.SendMessageRequest {
	m := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
	m.Metadata = map[string]any{"target": target}
	return &a2a.SendMessageRequest{Message: m}
}

// newTaskMessage returns a message to an existing task.
func newTaskMessage(task a2a.TaskInfoProvider, part *a2a.Part) *a2a.SendMessageRequest {
	return &a2a.SendMessageRequest{Message: a2a.NewMessageForTask(a2a.MessageRoleUser, task, part)}
}

// taskView holds what a client has received about a task.
type taskView struct {
	a2a.TaskInfo
	states       []a2a.TaskState // in the order of the changes
	status       a2a.TaskStatus
	chunks       int
	gotLastChunk bool // a chunk was the last
	text         string
	sequences    []uint64 // of the stored events of the mesh
	items        []bridge.Item
	files        map[a2a.ArtifactID]string // content of the artifacts that agents wrote, once they are complete
}

// addFile adds a chunk of an artifact that an agent writes.
func (v *taskView) addFile(e *a2a.TaskArtifactUpdateEvent) {
	if v.files == nil {
		v.files = map[a2a.ArtifactID]string{}
	}
	if !e.Append {
		v.files[e.Artifact.ID] = ""
	}
	v.files[e.Artifact.ID] += e.Artifact.Parts[0].Text()
	if e.LastChunk {
		v.files[e.Artifact.ID] += fmt.Sprintf(" (%v, version %v)", e.Artifact.Metadata["mediaType"], e.Artifact.Metadata["version"])
	}
}

// addEvent adds an event and reports whether it ends the turn.
func (v *taskView) addEvent(t *testing.T, told a2a.Event) (ended bool) {
	t.Helper()
	v.TaskInfo = told.TaskInfo()
	status := v.status
	switch e := told.(type) {
	case *a2a.Task:
		status = e.Status
		for _, a := range e.Artifacts {
			v.text = a.Parts[0].Text()
		}
	case *a2a.TaskStatusUpdateEvent:
		status = e.Status
	case *a2a.TaskArtifactUpdateEvent:
		if e.Artifact.ID != "answer" {
			v.addFile(e)
			break
		}
		require.False(t, v.gotLastChunk, "behind the last chunk is none")
		if !e.Append {
			v.text = ""
		}
		require.Contains(t, []a2a.TaskState{a2a.TaskStateWorking, a2a.TaskStateSubmitted}, v.status.State, "nor any behind the end")
		v.text += e.Artifact.Parts[0].Text()
		v.chunks++
		v.gotLastChunk = e.LastChunk
	default:
		require.Fail(t, "not an event of a task", "%T", told)
	}
	if len(v.states) == 0 || status.State != v.status.State {
		v.states = append(v.states, status.State)
	}
	v.status = status
	meta, ok := told.Meta()[bridge.ExtensionURI]
	if !ok {
		return false
	}
	var telling bridge.EventMetadata
	text, err := json.Marshal(meta)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &telling))
	if _, snapshot := told.(*a2a.Task); telling.Sequence > 0 && (!snapshot || len(telling.Events) > 0) {
		v.sequences = append(v.sequences, telling.Sequence)
	}
	v.items = append(v.items, telling.Events...)
	return status.State != a2a.TaskStateWorking && status.State != a2a.TaskStateSubmitted
}

// countKinds counts the received items by kind.
func (v *taskView) countKinds() map[string]int {
	all := map[string]int{}
	for _, item := range v.items {
		all[item.Kind]++
	}
	return all
}

// streamMessage sends a message and reads the stream to the end of its turn.
func (a *a2aMesh) streamMessage(t *testing.T, req *a2a.SendMessageRequest) *taskView {
	t.Helper()
	got := &taskView{}
	for told, err := range a.client.SendStreamingMessage(t.Context(), req) {
		require.NoError(t, err)
		got.addEvent(t, told)
	}
	return got
}

// sendMessage sends a message and waits for the end of its turn, without a stream.
func (a *a2aMesh) sendMessage(t *testing.T, req *a2a.SendMessageRequest) *a2a.Task {
	t.Helper()
	done, err := a.client.SendMessage(t.Context(), req)
	require.NoError(t, err)
	task, ok := done.(*a2a.Task)
	require.True(t, ok, "%T", done)
	return task
}

func (a *a2aMesh) getTask(t *testing.T, id a2a.TaskID) *a2a.Task {
	t.Helper()
	task, err := a.client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: id})
	require.NoError(t, err)
	return task
}

// callJSONRPC sends a JSON-RPC request and returns the error code and the error message of the response.
func (a *a2aMesh) callJSONRPC(t *testing.T, method, params string) (code int, message string) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":"1","method":"` + method + `","params":` + params + `}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set(a2a.SvcParamVersion, string(a2a.Version))
	resp, err := httpClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var said struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&said))
	return said.Error.Code, said.Error.Message
}

func cardListsWorkflowsAndAgents(t *testing.T, s *a2aMesh) {
	card := s.card(t)
	require.True(t, card.Capabilities.Streaming)
	tags := map[string]string{}
	for _, skill := range card.Skills {
		tags[skill.ID] = skill.Tags[0]
	}
	require.Equal(t, "workflow", tags["research-assistant"])
	require.Equal(t, "agent", tags["research"])
	require.Equal(t, "agent", tags[inputagent.Name])
}

// The bridge supports the previous version of the protocol, in which the methods have other names and the tasks
// are the same.
func previousVersionIsSupported(t *testing.T, s *a2aMesh) {
	older, err := a2aclient.NewFactory(a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: httpClient})).CreateFromEndpoints(t.Context(),
		[]*a2a.AgentInterface{{URL: s.url, ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2av0.Version}})
	require.NoError(t, err)
	defer func() { require.NoError(t, older.Destroy()) }()
	got := &taskView{}
	for told, err := range older.SendStreamingMessage(t.Context(), newTargetMessage(question, "research")) {
		require.NoError(t, err)
		got.addEvent(t, told)
	}
	require.Equal(t, a2a.TaskStateCompleted, got.status.State)
	require.Equal(t, got.text, s.getTask(t, got.TaskID).Artifacts[0].Parts[0].Text())
	_, err = older.GetTask(t.Context(), &a2a.GetTaskRequest{ID: a2a.TaskID(uuid.NewString())})
	require.ErrorIs(t, err, a2a.ErrTaskNotFound)
}

// lastSequence formats the last received sequence as the value of a header.
func lastSequence(sequences []uint64) string { return strconv.FormatUint(slices.Max(sequences), 10) }
