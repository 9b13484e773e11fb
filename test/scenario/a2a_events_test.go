package scenario

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	bridge "github.com/troupe-dev/troupe/internal/a2a"
	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
)

// These tests show what A2A clients receive during a turn, in the terms of requirement LP-29.

// newNarrator returns an agent that writes files, emits thoughts, reports progress, and calls the finder.
func newNarrator(s *a2aMesh) (*agent.Agent, error) {
	count, err := tool.Func("count", "Counts.", func(ctx context.Context, _ struct{}) (string, error) {
		tool.Progress(ctx, 1, 2, "half")
		memory := hook.InTool(ctx).Memory()
		for _, name := range []string{"plan.md", "rows.csv"} {
			if _, err := memory.SaveArtifact(ctx, name, "text/plain", []byte("1")); err != nil {
				return "", err
			}
		}
		for _, last := range []bool{false, true} {
			if _, err := memory.AppendArtifact(ctx, "report.md", "text/markdown", []byte("ab"), last); err != nil {
				return "", err
			}
		}
		return "two", memory.Set("count", 2)
	})
	if err != nil {
		return nil, err
	}
	remote, err := s.Agent("finder", agent.Config{Description: "Finds things."})
	if err != nil {
		return nil, err
	}
	finder, err := flow.AsTool(remote, flow.AsToolConfig{})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: "narrator", Tools: []tool.Tool{count, finder},
		Guard: tool.GuardOff, // otherwise the attached file would make the guard ask before each tool call
		Model: scripted.New(
			scripted.Call(conversation.ToolCall{ID: "c1", Name: "count", Arguments: `{}`}),
			scripted.Call(conversation.ToolCall{ID: "c2", Name: "finder", Arguments: `{"request":"Where is the third?"}`}),
			scripted.Reply{Deltas: []string{"There are ", "two"}, Finish: llm.FinishLength},
		),
		Handlers: []hook.Handler{
			hook.AfterTools(func(_ context.Context, round *hook.Round) error {
				round.Think("reflection", "Hm.")
				return nil
			}),
			hook.AfterAgent(func(context.Context, *hook.Turn) (string, error) { return "That is all.", nil }),
		},
	})
}

// newFinder returns an agent that starts to search when the channel may is closed.
func newFinder(may <-chan struct{}) (*agent.Agent, error) {
	look, err := tool.Func("look", "Looks.", func(context.Context, struct{}) (string, error) { return "an attic", nil })
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{Name: "finder", Description: "Finds things.", Guard: tool.GuardOff, Tools: []tool.Tool{look}, Model: scripted.New(
		scripted.Reply{Wait: may, ToolCalls: []conversation.ToolCall{{ID: "c1", Name: "look", Arguments: `{}`}}},
		scripted.Reply{Deltas: []string{"I would rather not say."}, Finish: llm.FinishRefusal},
	)})
}

// findItem returns the first item of a kind with the given data.
func (v *taskView) findItem(t *testing.T, kind string, data map[string]any) bridge.Item {
	t.Helper()
	i := slices.IndexFunc(v.items, func(item bridge.Item) bool {
		for key, want := range data {
			if item.Data[key] != want {
				return false
			}
		}
		return item.Kind == kind
	})
	require.GreaterOrEqual(t, i, 0, "%s %v in %v", kind, data, v.items)
	return v.items[i]
}

// requireItems checks the context, task, parent and time of all items. It also checks that no internal event
// reached the client.
func (v *taskView) requireItems(t *testing.T, context, task, parent string) {
	t.Helper()
	require.NotEmpty(t, v.items)
	for _, item := range v.items {
		require.Equal(t, context, item.ContextID, item.Kind)
		require.Equal(t, task, item.TaskID, item.Kind)
		require.Equal(t, parent, item.ParentTaskID, item.Kind)
		require.WithinDuration(t, time.Now(), item.Timestamp, time.Minute, item.Kind)
		require.False(t, strings.HasPrefix(item.Kind, "internal:"), item.Kind)
	}
}

// An agent calls another agent of the mesh. The call is a separate task that names its parent and can be
// subscribed to. The parent task waits for it, and its history contains nothing of the child. Both belong to the
// run of the parent.
// Req: LP-29, LP-44, OC-10
func taskEventsCoverTheWholeTurn(t *testing.T, s *a2aMesh) {
	may := make(chan struct{})
	host := func(name string, made func() (*agent.Agent, error)) {
		s.HostWorker(rig.Part(name+"-1"), rig.Program{Instance: name + "-1", DrainTimeout: time.Second, NewAgent: made})
		s.Await(name+" is ready", func() bool { return len(idleInstances(t, s.Mesh, name)) == 1 })
	}
	host("finder", func() (*agent.Agent, error) { return newFinder(may) })
	host("narrator", func() (*agent.Agent, error) { return newNarrator(s) })

	req := newTargetMessage("How many are there?", "narrator")
	req.Message.Parts = append(req.Message.Parts, &a2a.Part{Content: a2a.Raw("\x89PNG a map"), Filename: "map.png", MediaType: "image/png"})
	got, child := &taskView{}, &taskView{}
	for told, err := range s.client.SendStreamingMessage(t.Context(), req) {
		require.NoError(t, err)
		got.addEvent(t, told)
		if got.countKinds()["subtask-created"] == 1 && len(child.items) == 0 {
			require.Equal(t, a2a.TaskStateWorking, got.status.State)
			id := a2a.TaskID(got.findItem(t, "subtask-created", nil).Data["taskId"].(string))
			close(may)
			whole := a2aclient.AttachServiceParams(t.Context(), a2aclient.ServiceParams{bridge.AfterSequenceParam: {"0"}})
			for told, err := range s.client.SubscribeToTask(whole, &a2a.SubscribeToTaskRequest{ID: id}) {
				require.NoError(t, err)
				child.addEvent(t, told)
			}
		}
	}
	require.Equal(t, a2a.TaskStateCompleted, got.status.State, "%v", got.status.Message)
	got.requireItems(t, got.ContextID, string(got.TaskID), "")
	child.requireItems(t, child.ContextID, string(child.TaskID), string(got.TaskID))
	require.NotEqual(t, got.ContextID, child.ContextID)

	subtask := map[string]any{"taskId": string(child.TaskID), "callId": "c2"}
	created := got.findItem(t, "subtask-created", subtask)
	require.Equal(t, "narrator", created.Path)
	require.Equal(t, "finder", created.Data["target"])
	require.Equal(t, child.ContextID, created.Data["contextId"])
	subtask["state"] = "waiting-subtask"
	got.findItem(t, "task-status", subtask)
	got.findItem(t, "tool-progress", map[string]any{"callId": "c1", "fraction": 0.5, "message": "half"})
	got.findItem(t, "file-write", map[string]any{"name": "map.png"})
	got.findItem(t, "file-write", map[string]any{"name": "plan.md"})
	got.findItem(t, "dataset-write", map[string]any{"name": "rows.csv"})
	got.findItem(t, "file-write", map[string]any{"name": "report.md", "append": false, "complete": false})
	got.findItem(t, "file-write", map[string]any{"name": "report.md", "append": true, "complete": true, "version": 1.0})
	require.Equal(t, "abab (text/markdown, version 1)", got.files["artifact/report.md"])
	got.findItem(t, "content-delta", map[string]any{"index": 1.0, "delta": "two"})
	got.findItem(t, "content-complete", map[string]any{"finishReason": "tool_calls"})
	got.findItem(t, "content-complete", map[string]any{"finishReason": "length"})
	child.findItem(t, "content-complete", map[string]any{"finishReason": "content_filter"})
	child.findItem(t, "tool-call", map[string]any{"tool": "look"})
	for _, kind := range []string{
		"task-created", "task-status", "task-complete", "tool-call", "tool-start", "tool-complete",
		"data-write", "thought-stream", "llm-usage", "message",
	} {
		require.Positive(t, got.countKinds()[kind], kind)
	}

	history := func(session string) (said []string) {
		page, err := s.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: session})
		require.NoError(t, err)
		for _, m := range page.GetMessages() {
			said = append(said, m.GetParts()[0].GetText())
		}
		return said
	}
	require.Equal(t, []string{"Where is the third?", "I would rather not say."}, history(child.ContextID))
	require.Equal(t, []string{"How many are there?", "There are two", "That is all."}, history(got.ContextID), "what the child did is with the child")
	for _, task := range []a2a.TaskID{got.TaskID, child.TaskID} {
		require.Len(t, s.getTask(t, task).History, 1, "what its user said")
	}
	requireOneRun(t, s.Mesh, string(got.TaskID), string(got.TaskID), string(child.TaskID))
}

// requireOneRun checks that the run of the root trace contains exactly the given traces.
func requireOneRun(t *testing.T, m *rig.Mesh, root string, traces ...string) {
	t.Helper()
	for _, id := range traces {
		stream, err := m.WatchTrace(t.Context(), &troupev1.WatchTraceRequest{TraceId: id})
		require.NoError(t, err)
		for {
			resp, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.Equal(t, id, resp.GetEvent().GetTraceId())
			require.Equal(t, root, resp.GetEvent().GetRootTraceId(), "%v", resp.GetEvent())
		}
	}
	run, err := m.ListTraces(t.Context(), &troupev1.ListTracesRequest{RootTraceId: root})
	require.NoError(t, err)
	var listed []string
	for _, trace := range run.GetTraces() {
		listed = append(listed, trace.GetTraceId())
	}
	require.ElementsMatch(t, traces, listed)
}

// A call that needs a credential is pending in its task until the client sends a sealed credential. The task stays
// a child of the task that it references, and no event contains the sealed data.
// Req: LP-29
func credentialIsGivenInItsTask(t *testing.T, s *a2aMesh) {
	key, above := uuid.NewString(), "0af7651916cd43dd8448eb211c80319c"
	req := newTargetMessage("fetch "+key, inputagent.Name)
	req.Message.ReferenceTasks = []a2a.TaskID{"of another system", a2a.TaskID(above)}
	got := s.streamMessage(t, req)
	require.Equal(t, a2a.TaskStateAuthRequired, got.status.State)
	got.requireItems(t, got.ContextID, string(got.TaskID), above)
	got.findItem(t, "tool-input-required", map[string]any{"tool": "fetch", "needs": "auth"})
	got.findItem(t, "auth-required", nil)
	got.findItem(t, "task-status", map[string]any{"state": "waiting-auth"})
	var call map[string]any
	for _, p := range got.status.Message.Parts {
		if data, ok := p.Data().(map[string]any); ok {
			call = data["pending"].([]any)[0].(map[string]any)
		}
	}
	auth := call["auth"].(map[string]any)
	require.Equal(t, inputagent.Credential, auth["name"])
	public, err := base64.StdEncoding.DecodeString(auth["publicKey"].(string))
	require.NoError(t, err)
	sealed, err := broker.Seal(auth["authId"].(string), got.ContextID, public, secret.New("hunter2"))
	require.NoError(t, err)

	s.gate.Open(key)
	reply := map[string]any{"id": call["id"], "verdict": "approve", "sealed": base64.StdEncoding.EncodeToString(sealed)}
	answered := &taskView{}
	for told, err := range s.client.SendStreamingMessage(t.Context(), newTaskMessage(got.TaskInfo, a2a.NewDataPart(map[string]any{"answers": []any{reply}}))) {
		require.NoError(t, err)
		answered.addEvent(t, told)
		text, err := json.Marshal(told)
		require.NoError(t, err)
		require.NotContains(t, string(text), reply["sealed"])
	}
	require.Equal(t, a2a.TaskStateCompleted, answered.status.State)
	require.Equal(t, "I was told: fetched", answered.text)
	s.requireCredentials(t, key, "hunter2")
	answered.requireItems(t, got.ContextID, string(got.TaskID), above)
	answered.findItem(t, "input-received", nil)
	answered.findItem(t, "auth-completed", map[string]any{"id": call["id"], "authId": auth["authId"], "verdict": "approve"})

	// A turn that references the continuation of a task is a child of that task.
	trace := s.getTask(t, got.TaskID).Meta()[bridge.ExtensionURI].(map[string]any)["traceId"].(string)
	require.NotEqual(t, string(got.TaskID), trace)
	below := newTargetMessage(question, "research")
	below.Message.ReferenceTasks = []a2a.TaskID{a2a.TaskID(trace)}
	child := s.streamMessage(t, below)
	child.requireItems(t, child.ContextID, string(child.TaskID), string(got.TaskID))
	stored, err := s.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: string(child.TaskID)})
	require.NoError(t, err)
	require.Equal(t, trace, stored.GetTrace().GetParent().GetTraceId())
	require.Equal(t, above, stored.GetTrace().GetRootTraceId(), "it is in the run to which the task refers")
}
