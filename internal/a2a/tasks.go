package a2a

import (
	"cmp"
	"context"
	"iter"
	"regexp"
	"strconv"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// taskIDPattern matches task ids. The id of a task is the trace id of its first turn.
var taskIDPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// maxSearchedTraces limits how many traces are searched for the latest turn of a task.
const maxSearchedTraces = 200

// findTrace returns the trace of the last turn that continued the task, or of its first turn if none did.
func (b *Bridge) findTrace(ctx context.Context, id a2a.TaskID) (*troupev1.Trace, error) {
	if !taskIDPattern.MatchString(string(id)) {
		return nil, newNotFoundError(id)
	}
	first, err := b.getTrace(ctx, string(id))
	if failure.Is(err, failure.NotFound) {
		return nil, newNotFoundError(id)
	}
	if err != nil || askKinds[stateFromResult(first.GetResult())] == "" {
		return first, err
	}
	s, err := b.client.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: first.GetSessionId()})
	if failure.Is(grpcfailure.FromStatus("a2a", err), failure.NotFound) {
		return first, nil // the session was deleted; the result of the turn is still available
	}
	if err != nil {
		return nil, err
	}
	last := s.GetSession().GetLastTraceId()
	if last == first.GetTraceId() || last == "" {
		return first, nil
	}
	if trace, err := b.getTrace(ctx, last); err == nil && continuesTask(trace.GetRequestId(), id) {
		return trace, nil
	}
	traces, err := b.client.ListTraces(ctx, &troupev1.ListTracesRequest{PageSize: maxSearchedTraces})
	for _, trace := range traces.GetTraces() { // newest first
		if trace.GetSessionId() == first.GetSessionId() && continuesTask(trace.GetRequestId(), id) {
			return b.getTrace(ctx, trace.GetTraceId())
		}
	}
	return first, err
}

func (b *Bridge) getTrace(ctx context.Context, id string) (*troupev1.Trace, error) {
	resp, err := b.client.GetTrace(ctx, &troupev1.GetTraceRequest{TraceId: id})
	return resp.GetTrace(), grpcfailure.FromStatus("a2a", err)
}

// findParentTask returns the parent of a task. If the parent's trace continued an earlier task, it returns that
// task. It returns an empty string if the task has no parent.
func (b *Bridge) findParentTask(ctx context.Context, p *troupev1.Parent) string {
	if p == nil {
		return ""
	}
	trace, _ := b.getTrace(ctx, p.GetTraceId()) // if the trace has expired, the parent is used as given
	return cmp.Or(taskFromRequestID(trace.GetRequestId()), p.GetTraceId())
}

// joinRun copies the root trace of a turn's parent to the turn, so that both belong to one run. If the parent's
// trace is not found, for example because it expired, the turn starts a new run.
func (b *Bridge) joinRun(ctx context.Context, p *troupev1.Parent) {
	if p == nil || p.GetRootTraceId() != "" {
		return
	}
	trace, _ := b.getTrace(ctx, p.GetTraceId())
	p.RootTraceId = trace.GetRootTraceId()
}

// taskFromTrace returns a task in the current state of its trace.
func taskFromTrace(id a2a.TaskID, trace *troupev1.Trace) *a2a.Task {
	t := newTaskStream(a2a.TaskInfo{TaskID: id, ContextID: trace.GetSessionId()}, nil)
	at := trace.GetStarted().AsTime()
	task := t.newTask(a2a.TaskStatus{State: a2a.TaskStateWorking, Timestamp: &at}, trace.GetText())
	if r := trace.GetResult(); r != nil {
		task = t.newFinalTask(r, trace.GetText(), at.Add(r.GetDuration().AsDuration()))
	}
	task.SetMeta(ExtensionURI, EventMetadata{Sequence: trace.GetLastSequence(), TraceID: trace.GetTraceId(), Events: []Item{}})
	return task
}

// GetTask implements a2asrv.RequestHandler. The task contains the first 200 characters of the user's text, because
// the trace stores no more.
func (b *Bridge) GetTask(ctx context.Context, req *a2a.GetTaskRequest) (*a2a.Task, error) {
	trace, err := b.findTrace(ctx, req.ID)
	if err != nil {
		return nil, b.toClientError("GetTask", err)
	}
	task := taskFromTrace(req.ID, trace)
	if n := req.HistoryLength; n != nil && *n == 0 {
		task.History = nil
	}
	return task, nil
}

// cancelTimeout is how long a cancel request waits for the turn to end.
const cancelTimeout = 5 * time.Second

// CancelTask implements a2asrv.RequestHandler. The turn is cancelled even if the client disconnects in the
// meantime (AD-33).
func (b *Bridge) CancelTask(ctx context.Context, req *a2a.CancelTaskRequest) (*a2a.Task, error) {
	trace, err := b.findTrace(ctx, req.ID)
	if err != nil {
		return nil, b.toClientError("CancelTask", err)
	}
	if trace.GetState() == troupev1.TraceState_TRACE_STATE_RUNNING {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer stop()
		resp, err := b.client.CancelTrace(ctx, &troupev1.CancelTraceRequest{TraceId: trace.GetTraceId(), Reason: "a client of A2A cancelled the task"})
		if err != nil {
			return nil, b.toClientError("CancelTask", err)
		}
		trace = resp.GetTrace()
		if stateFromResult(trace.GetResult()) == a2a.TaskStateCanceled {
			return taskFromTrace(req.ID, trace), nil
		}
	}
	if askKinds[stateFromResult(trace.GetResult())] != "" {
		return nil, a2a.NewError(a2a.ErrTaskNotCancelable,
			"nothing is running that could be cancelled: the task waits for an answer; deny its calls, or leave them unanswered")
	}
	return nil, a2a.NewError(a2a.ErrTaskNotCancelable, "the task has ended")
}

// AfterSequenceParam is the service parameter (an HTTP header) that a reconnecting client sends. Its value is the
// highest sequence that the client has received. The stream continues after that sequence.
const AfterSequenceParam = "Troupe-After-Sequence"

// SubscribeToTask implements a2asrv.RequestHandler. It streams the task in its current state, and then every later
// event until the turn ends. With AfterSequenceParam it streams every event after that sequence.
func (b *Bridge) SubscribeToTask(ctx context.Context, req *a2a.SubscribeToTaskRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		after, resumes, err := resumeSequence(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		trace, err := b.findTrace(ctx, req.ID)
		if err != nil {
			yield(nil, b.toClientError("SubscribeToTask", err))
			return
		}
		task := taskFromTrace(req.ID, trace)
		if task.Status.State.Terminal() && !resumes {
			yield(nil, a2a.NewError(a2a.ErrUnsupportedOperation, "the task has ended; call GetTask to get its result"))
			return
		}
		last := trace.GetLastSequence()
		if !resumes {
			after = last
		}
		if !yield(task, nil) || after >= last && trace.GetState() == troupev1.TraceState_TRACE_STATE_ENDED {
			return
		}
		t := newTaskStream(task.TaskInfo(), nil)
		t.lastKnownSequence, t.parent = last, b.findParentTask(ctx, trace.GetParent())
		for e, err := range b.client.Watch(ctx, trace.GetTraceId(), after) {
			if err != nil {
				yield(nil, b.toClientError("SubscribeToTask", err))
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

// resumeSequence returns the sequence after which a reconnecting client continues, and whether the request
// contains one.
func resumeSequence(ctx context.Context) (sequence uint64, resumes bool, err error) {
	call, ok := a2asrv.CallContextFrom(ctx)
	if !ok {
		return 0, false, nil
	}
	values, ok := call.ServiceParams().Get(AfterSequenceParam)
	if !ok || len(values) == 0 {
		return 0, false, nil
	}
	if sequence, err = strconv.ParseUint(values[0], 10, 64); err != nil {
		return 0, false, a2a.NewError(a2a.ErrInvalidParams, AfterSequenceParam+": want the sequence of an event, a number")
	}
	return sequence, true, nil
}
