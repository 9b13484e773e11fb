package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	bridge "github.com/troupe-dev/troupe/internal/a2a"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
)

// Each message creates one turn and one task, even if the message is sent twice. The next message in its context
// creates another task of the same session.
func messageCreatesOneTask(t *testing.T, s *a2aMesh) {
	req := newTargetMessage(question, "")
	req.Message.ContextID = uuid.NewString()
	task := s.sendMessage(t, req)
	require.Equal(t, a2a.TaskStateCompleted, task.Status.State)
	require.Equal(t, req.Message.ContextID, task.ContextID)
	require.Contains(t, task.Artifacts[0].Parts[0].Text(), "agent")
	require.Equal(t, question, task.History[0].Parts[0].Text())
	require.Equal(t, task.Artifacts, s.getTask(t, task.ID).Artifacts)
	require.Equal(t, task.ID, s.sendMessage(t, req).ID, "the same message is the same task")

	next := newTargetMessage("What is an epoch?", "research")
	next.Message.ContextID, next.Message.ReferenceTasks = task.ContextID, []a2a.TaskID{task.ID}
	next.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	begun := s.sendMessage(t, next)
	require.NotEqual(t, task.ID, begun.ID)
	require.Equal(t, task.ContextID, begun.ContextID)
	require.Equal(t, []a2a.TaskID{task.ID}, begun.History[0].ReferenceTasks)
	s.Await("the task ends without its client", func() bool { return s.getTask(t, begun.ID).Status.State == a2a.TaskStateCompleted })

	anew := newTargetMessage("Something else", "")
	anew.Message.ID, anew.Message.ContextID = req.Message.ID, req.Message.ContextID
	_, err := s.client.SendMessage(t.Context(), anew)
	require.ErrorIs(t, err, a2a.ErrInvalidParams, "the id of a message stands for what it says")
}

// A task is submitted, works, streams its answer, and ends. Each event of the mesh is published once, in order,
// with its task and agent. A task that references another task is its child.
// Req: AD-33, LP-38
func taskStreamsItsEvents(t *testing.T, s *a2aMesh) {
	req := newTargetMessage(question, "")
	req.Message.ReferenceTasks = []a2a.TaskID{"0af7651916cd43dd8448eb211c80319c"}
	got := s.streamMessage(t, req)
	require.Equal(t, []a2a.TaskState{a2a.TaskStateSubmitted, a2a.TaskStateWorking, a2a.TaskStateCompleted}, got.states)
	require.Greater(t, got.chunks, 2)
	require.True(t, got.gotLastChunk)
	require.Equal(t, s.getTask(t, got.TaskID).Artifacts[0].Parts[0].Text(), got.text)
	for i, sequence := range got.sequences {
		require.EqualValues(t, i+1, sequence)
	}
	for _, item := range got.items {
		require.Equal(t, got.ContextID, item.ContextID)
		require.Equal(t, string(got.TaskID), item.TaskID)
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", item.ParentTaskID)
		require.WithinDuration(t, time.Now(), item.Timestamp, time.Minute)
		if item.Kind == "content-delta" || item.Kind == "tool-start" {
			require.NotEmpty(t, item.Path)
		}
	}
	kinds := got.countKinds()
	for _, kind := range []string{
		"task-created", "task-status", "content-delta", "content-complete", "llm-usage", "tool-call", "tool-start",
		"tool-complete", "task-complete",
	} {
		require.Positive(t, kinds[kind], kind)
	}
	require.Equal(t, kinds["tool-start"], kinds["tool-complete"])
}

// A question by an agent is the status message of a task in the state input-required. A text message to the task
// answers the question.
func questionIsAnsweredInItsTask(t *testing.T, s *a2aMesh) {
	got := s.streamMessage(t, newTargetMessage("Tell me about it", ""))
	require.Equal(t, a2a.TaskStateInputRequired, got.status.State)
	require.Contains(t, got.status.Message.Parts[0].Text(), "?")
	require.Equal(t, got.status.Message.Parts, s.getTask(t, got.TaskID).Status.Message.Parts)

	req := newTaskMessage(got.TaskInfo, a2a.NewTextPart("The epoch of a turn"))
	answered := s.streamMessage(t, req)
	require.Equal(t, got.TaskInfo, answered.TaskInfo)
	require.Equal(t, []a2a.TaskState{a2a.TaskStateWorking, a2a.TaskStateCompleted}, answered.states)
	require.Equal(t, "input-received", answered.items[0].Kind)
	require.Equal(t, answered.text, s.getTask(t, got.TaskID).Artifacts[0].Parts[0].Text())
	require.Equal(t, got.TaskID, s.sendMessage(t, req).ID, "the same answer is given once")

	_, err := s.client.SendMessage(t.Context(), newTaskMessage(got.TaskInfo, a2a.NewTextPart("And now?")))
	require.ErrorIs(t, err, a2a.ErrUnsupportedOperation, "a task that has ended takes no message")
}

// A pending approval appears as data of the task, and the client answers with data as well. The task can still be
// fetched after its context has continued.
func pendingCallIsAnsweredInItsTask(t *testing.T, s *a2aMesh) {
	key := uuid.NewString()
	task := s.sendMessage(t, newTargetMessage("send "+key, inputagent.Name))
	require.Equal(t, a2a.TaskStateInputRequired, task.Status.State)
	var call map[string]any
	for _, p := range task.Status.Message.Parts {
		if data, ok := p.Data().(map[string]any); ok {
			call = data["pending"].([]any)[0].(map[string]any)
		}
	}
	require.Equal(t, "send", call["tool"])
	require.Equal(t, "approval", call["needs"])
	require.JSONEq(t, `{"key":"`+key+`"}`, call["arguments"].(string))
	s.requireToolRuns(t, key, 0)
	_, err := s.client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: task.ID})
	require.ErrorIs(t, err, a2a.ErrTaskNotCancelable)

	s.gate.Open(key)
	answers := a2a.NewDataPart(map[string]any{"answers": []any{map[string]any{"id": call["id"], "verdict": "approve"}}})
	answered := s.streamMessage(t, newTaskMessage(task, answers))
	require.Equal(t, task.ID, answered.TaskID)
	require.Equal(t, a2a.TaskStateCompleted, answered.status.State)
	require.Equal(t, "I was told: sent", answered.text)
	s.requireToolRuns(t, key, 1)

	other := newTargetMessage("Never mind.", inputagent.Name)
	other.Message.ContextID = task.ContextID
	require.NotEqual(t, task.ID, s.sendMessage(t, other).ID)
	require.Equal(t, a2a.TaskStateCompleted, s.getTask(t, task.ID).Status.State, "and not as it waited")
	_, err = s.client.SendMessage(t.Context(), newTaskMessage(task, answers))
	require.ErrorIs(t, err, a2a.ErrUnsupportedOperation)
}

// Cancelling a task ends its turn, and its subscribers receive the cancellation.
//
// Req: AD-33
func cancelledTaskIsCanceled(t *testing.T, s *a2aMesh) {
	key := uuid.NewString()
	got := &taskView{}
	for told, err := range s.client.SendStreamingMessage(t.Context(), newTargetMessage("hold "+key, "slow")) {
		require.NoError(t, err)
		got.addEvent(t, told)
		if slices.ContainsFunc(got.items, func(i bridge.Item) bool { return i.Kind == "tool-start" }) && !slices.Contains(got.states, a2a.TaskStateCanceled) {
			_, err := s.client.SendMessage(t.Context(), newTaskMessage(got.TaskInfo, a2a.NewTextPart("hurry")))
			require.ErrorIs(t, err, a2a.ErrUnsupportedOperation, "it is at work")
			s.gate.AwaitCall(t, key)
			task, err := s.client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: got.TaskID})
			require.NoError(t, err)
			require.Equal(t, a2a.TaskStateCanceled, task.Status.State)
			got.items = slices.DeleteFunc(got.items, func(i bridge.Item) bool { return i.Kind == "tool-start" })
		}
	}
	require.Equal(t, []a2a.TaskState{a2a.TaskStateSubmitted, a2a.TaskStateWorking, a2a.TaskStateCanceled}, got.states)
	require.Equal(t, a2a.TaskStateCanceled, s.getTask(t, got.TaskID).Status.State)
	_, err := s.client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: got.TaskID})
	require.ErrorIs(t, err, a2a.ErrTaskNotCancelable)
}

// A failed turn is a failed task, not an error of the protocol.
func failedTurnIsAFailedTask(t *testing.T, s *a2aMesh) {
	got := s.streamMessage(t, newTargetMessage("fail "+uuid.NewString(), "slow"))
	require.Equal(t, a2a.TaskStateFailed, got.status.State)
	require.Contains(t, got.status.Message.Parts[0].Text(), "the gate does not take")
	require.Equal(t, a2a.TaskStateFailed, s.getTask(t, got.TaskID).Status.State)
}

// A client resumes a stream that broke in the middle of a text. No event is missing or repeated, and the answer is
// complete.
func brokenStreamResumes(t *testing.T, s *a2aMesh) {
	key := uuid.NewString()
	got := &taskView{}
	for told, err := range s.client.SendStreamingMessage(t.Context(), newTargetMessage("hold "+key, "slow")) {
		require.NoError(t, err)
		got.addEvent(t, told)
		if got.chunks > 0 {
			break
		}
	}
	s.gate.AwaitCall(t, key)
	after := a2aclient.AttachServiceParams(t.Context(), a2aclient.ServiceParams{bridge.AfterSequenceParam: {lastSequence(got.sequences)}})
	resumed := *got
	resumed.gotLastChunk = false
	for told, err := range s.client.SubscribeToTask(after, &a2a.SubscribeToTaskRequest{ID: got.TaskID}) {
		require.NoError(t, err)
		if resumed.addEvent(t, told); resumed.countKinds()["tool-start"] == 1 && s.gate.Callers(key) != nil {
			break // resume once more
		}
	}
	live := &taskView{}
	for told, err := range s.client.SubscribeToTask(t.Context(), &a2a.SubscribeToTaskRequest{ID: got.TaskID}) {
		require.NoError(t, err)
		if task, ok := told.(*a2a.Task); ok {
			require.Equal(t, a2a.TaskStateWorking, task.Status.State)
			s.gate.Open(key)
		}
		live.addEvent(t, told)
	}
	resumed.sequences = append(resumed.sequences, live.sequences...)
	for i, sequence := range resumed.sequences {
		require.EqualValues(t, i+1, sequence, "%v", resumed.sequences)
	}
	require.Equal(t, a2a.TaskStateCompleted, live.status.State)
	require.Equal(t, "The gate is open.", live.text)
	require.Equal(t, live.text, s.getTask(t, got.TaskID).Artifacts[0].Parts[0].Text())

	for _, err := range s.client.SubscribeToTask(t.Context(), &a2a.SubscribeToTaskRequest{ID: got.TaskID}) {
		require.ErrorIs(t, err, a2a.ErrUnsupportedOperation, "nothing happens any more")
	}
	again := &taskView{}
	for told, err := range s.client.SubscribeToTask(after, &a2a.SubscribeToTaskRequest{ID: got.TaskID}) {
		require.NoError(t, err)
		again.addEvent(t, told)
	}
	require.Equal(t, resumed.sequences[len(got.sequences):], again.sequences)
	require.Equal(t, "The gate is open.", again.text)
}

// An A2A feature that the mesh does not support returns the right error code, and a message that names an
// alternative.
// Req: LP-38
func unsupportedRequestsReturnTheirCode(t *testing.T, s *a2aMesh) {
	done := string(s.sendMessage(t, newTargetMessage(question, "research")).ID)
	message := func(more string) string {
		return `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hello"}]` + more + `}}`
	}
	for name, tc := range map[string]struct {
		method, params string
		code           int
		says           string
	}{
		"a task that never was": {"GetTask", `{"id":"0af7651916cd43dd8448eb211c80319c"}`, -32001, "there is no task"},
		"an id that is none":    {"GetTask", `{"id":"../x"}`, -32001, "there is no task"},
		"a message to no task":  {"SendMessage", message(`,"taskId":"0af7651916cd43dd8448eb211c80319c"`), -32001, "there is no task"},
		"a task that has ended": {"CancelTask", `{"id":"` + done + `"}`, -32002, "has ended"},
		"a push notification":   {"GetTaskPushNotificationConfig", `{"taskId":"` + done + `","id":"1"}`, -32003, "GetTask"},
		"a call back with a message": {
			"SendMessage", `{"configuration":{"taskPushNotificationConfig":{"url":"http://x"}},` + message("")[1:], -32003,
			"GetTask",
		},
		"a list":                  {"ListTasks", `{}`, -32004, "by its id"},
		"a message to what ended": {"SendMessage", message(`,"taskId":"` + done + `"`), -32004, "contextId"},
		"a file that is elsewhere": {
			"SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"url":"http://x"}]}}`, -32005,
			"send the bytes",
		},
		"a file with a path": {
			"SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"raw":"eA==","filename":"a/b"}]}}`,
			-32602, "another name",
		},
		"an unknown agent":         {"SendMessage", message(`,"metadata":{"target":"nowhere"}`), -32602, "nowhere"},
		"a session that cannot be": {"SendMessage", message(`,"contextId":"a b"`), -32602, "session_id"},
		"another context":          {"SendMessage", message(`,"contextId":"other","taskId":"` + done + `"`), -32602, "another context"},
		"a method that is none":    {"Frobnicate", `{}`, -32601, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, says := s.callJSONRPC(t, tc.method, tc.params)
			require.Equal(t, tc.code, code, says)
			require.Contains(t, says, tc.says)
		})
	}
}
