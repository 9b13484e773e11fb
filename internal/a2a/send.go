package a2a

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// SendMessage implements a2asrv.RequestHandler. It returns the task when its turn has ended, or as soon as the
// turn has started if the client does not want to wait. The turn continues if the client disconnects.
func (b *Bridge) SendMessage(ctx context.Context, req *a2a.SendMessageRequest) (a2a.SendMessageResult, error) {
	var task *a2a.Task
	for e, err := range b.SendStreamingMessage(ctx, req) {
		if err != nil {
			return nil, err
		}
		switch e := e.(type) {
		case *a2a.Task:
			task = e
			if req.Config != nil && req.Config.ReturnImmediately {
				return task, nil
			}
		case *a2a.TaskStatusUpdateEvent:
			if e.Status.State == a2a.TaskStateWorking {
				continue
			}
			ended, err := b.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID})
			if err == nil {
				ended.History = task.History // the full message; GetTask would cut it
			}
			return ended, err
		}
	}
	return nil, a2a.NewError(a2a.ErrServerError, "the turn did not end; call GetTask to see its state")
}

// SendStreamingMessage implements a2asrv.RequestHandler. It streams the events of the turn that the message
// starts. If the message names a waiting task, the turn continues that task.
func (b *Bridge) SendStreamingMessage(ctx context.Context, req *a2a.SendMessageRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		turn, task, err := b.newTurnRequest(ctx, req)
		if err != nil {
			yield(nil, toA2AError(err))
			return
		}
		var t *taskStream
		for e, err := range b.client.Turn(ctx, turn) {
			if t == nil && err == nil {
				t = newTaskStream(a2a.TaskInfo{TaskID: cmp.Or(task, a2a.TaskID(e.GetTraceId())), ContextID: e.GetSessionId()}, withoutSecrets(req.Message,
					turn))
				t.parent = b.findParentTask(ctx, e.GetTurnStarted().GetParent())
			}
			if failure.Is(err, failure.NotFound) && t == nil {
				err = a2a.NewError(a2a.ErrInvalidParams, failure.PlainMessage(err)) // the target does not exist
			}
			if err != nil {
				yield(nil, b.toClientError("SendMessage", err))
				return
			}
			for _, converted := range t.convert(e) {
				if !yield(converted, nil) {
					return
				}
			}
		}
	}
}

// newTurnRequest returns the turn request for a message and the id of the task that the turn continues (empty if
// it starts a new task).
func (b *Bridge) newTurnRequest(ctx context.Context, req *a2a.SendMessageRequest) (*troupev1.OrchestrateRequest, a2a.TaskID, error) {
	m := req.Message
	if m == nil || m.ID == "" {
		return nil, "", a2a.NewError(a2a.ErrInvalidParams, "message: it needs a messageId, which makes the call repeatable")
	}
	if req.Config != nil && req.Config.PushConfig != nil {
		return nil, "", errPushUnsupported
	}
	turn := &troupev1.OrchestrateRequest{SessionId: m.ContextID, RequestId: requestIDFromMessage(m.TaskID, m.ID), Parent: parentFromReferences(m)}
	if err := addInput(turn, m); err != nil {
		return nil, "", err
	}
	if m.TaskID != "" {
		return turn, m.TaskID, b.continueTask(ctx, turn, m)
	}
	b.joinRun(ctx, turn.GetParent())
	turn.SessionId = cmp.Or(turn.GetSessionId(), uuid.NewString())
	turn.Target = cmp.Or(targetFromMetadata(m.Metadata), targetFromMetadata(req.Metadata), b.defaultTarget)
	if turn.GetAnswers() != nil {
		return nil, "", a2a.NewError(a2a.ErrInvalidParams, "message.taskId: answers go to the task that waits for them; name it")
	}
	return turn, "", nil
}

// continueTask completes the turn request for a message that names a task. It returns an error if the task accepts no
// message.
func (b *Bridge) continueTask(ctx context.Context, turn *troupev1.OrchestrateRequest, m *a2a.Message) error {
	trace, err := b.findTrace(ctx, m.TaskID)
	switch {
	case err != nil:
		return err
	case m.ContextID != "" && m.ContextID != trace.GetSessionId():
		return a2a.NewError(a2a.ErrInvalidParams, "message.contextId: the task belongs to another context; leave it out")
	case trace.GetRequestId() == turn.GetRequestId(): // a repeated message gets the same turn
	case trace.GetState() == troupev1.TraceState_TRACE_STATE_RUNNING:
		return a2a.NewError(a2a.ErrUnsupportedOperation, "the task is running and accepts no message; wait until it ends, or cancel it")
	case askKinds[stateFromResult(trace.GetResult())] == "":
		return a2a.NewError(a2a.ErrUnsupportedOperation,
			"the task has ended; send the message without taskId, and with its contextId, to continue the conversation")
	}
	turn.SessionId = trace.GetSessionId()
	if parent := trace.GetParent(); parent != nil { // a continued task keeps its target
		turn.Parent = parent
		turn.Parent.RootTraceId = cmp.Or(parent.GetRootTraceId(), trace.GetRootTraceId())
	}
	b.joinRun(ctx, turn.GetParent())
	if turn.GetAnswers() == nil {
		turn.Target = trace.GetTarget()
	}
	return nil
}

// targetFromMetadata returns the workflow or agent that a client names in the metadata of a message (empty for
// none).
func targetFromMetadata(metadata map[string]any) string {
	name, _ := metadata["target"].(string)
	return name
}

// requestIDFromMessage derives the request id of a turn from its message, so that a repeated message in the same
// context finds the same turn. The id also contains the task that the turn continues, because nothing else in the
// mesh stores it.
func requestIDFromMessage(task a2a.TaskID, message string) string {
	sum := sha256.Sum256([]byte(message))
	return "a2a:" + string(task) + ":" + hex.EncodeToString(sum[:16])
}

// taskFromRequestID returns the task that a turn continues, read from its request id (empty for none).
func taskFromRequestID(requestID string) string {
	rest, ours := strings.CutPrefix(requestID, "a2a:")
	task, _, _ := strings.Cut(rest, ":")
	if !ours || !taskIDPattern.MatchString(task) {
		return ""
	}
	return task
}

// continuesTask reports whether the turn with this request id continues the task.
func continuesTask(requestID string, task a2a.TaskID) bool {
	return taskFromRequestID(requestID) == string(task)
}
