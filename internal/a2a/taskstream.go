package a2a

import (
	"maps"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ExtensionURI identifies the A2A extension of the bridge. It is also the metadata key of the EventMetadata in
// each event of a task.
const ExtensionURI = "https://troupe.dev/a2a/events/v1"

// EventMetadata describes an event of the mesh in the vocabulary of LP-29.
type EventMetadata struct {
	// Sequence is the sequence of the event in the mesh, from 1 without gaps (0 for an event that is not stored).
	Sequence uint64 `json:"sequence"`
	// TraceID is the id of the turn's trace.
	TraceID string `json:"traceId"`
	// Events are the items into which the event of the mesh was converted.
	Events []Item `json:"events"`
}

// taskStream converts the events of one turn to A2A events of a task.
type taskStream struct {
	task              a2a.TaskInfo
	parent            string         // the parent task (empty for none)
	userMessage       *a2a.Message   // input of the user (nil means the input in the trace)
	lastKnownSequence uint64         // events up to this sequence happened before the client subscribed
	streamingSteps    map[int32]bool // running steps whose text the client gets from its beginning
	concurrentSteps   int            // number of concurrent steps known so far
	stepStarted       bool           // whether the concurrent steps have started, so that the next decision begins a new group
	answer            answerStream
	deltaCounts       map[textKey]int // number of deltas of each text
}

// textKey identifies a streamed text. Concurrent steps may run the same agent, so the agent alone is not enough.
type textKey struct {
	step int32
	path string
}

func textKeyFromEvent(e *troupev1.Event) textKey {
	return textKey{step: e.GetStep(), path: agentPath(e)}
}

func newTaskStream(task a2a.TaskInfo, asked *a2a.Message) *taskStream {
	return &taskStream{task: task, userMessage: asked, streamingSteps: map[int32]bool{}, answer: answerStream{task: task}, deltaCounts: map[textKey]int{}}
}

// convert returns the A2A events for an event of the mesh. Every event is converted, except text deltas of steps
// that started before the client subscribed, because that client gets the whole text at the end. Text of
// concurrent steps is not part of the answer, because a later step writes the answer.
func (t *taskStream) convert(e *troupev1.Event) []a2a.Event {
	var converted []a2a.Event
	at := eventContext{task: string(t.task.TaskID)}
	t.stepStarted = t.stepStarted || e.GetStep() > 0
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_RoutingDecision:
		t.countDecision(p.RoutingDecision)
	case *troupev1.Event_StepStarted:
		t.trackStep(e)
	case *troupev1.Event_StepFinished:
		delete(t.streamingSteps, e.GetStep())
	case *troupev1.Event_ModelCall:
		t.trackStep(e)
		delete(t.deltaCounts, textKeyFromEvent(e))
		if p.ModelCall.GetToolCalls() > 0 {
			t.answer.scheduleRestart(e.GetStep())
		}
	case *troupev1.Event_TextRetracted:
		t.trackStep(e)
		maps.DeleteFunc(t.deltaCounts, func(v textKey, _ int) bool { return v.step == e.GetStep() })
		if c := t.answer.retract(e.GetStep()); c != nil {
			converted = append(converted, c)
		}
	case *troupev1.Event_TextDelta:
		if !t.streamingSteps[e.GetStep()] {
			return nil
		}
		at.index = t.deltaCounts[textKeyFromEvent(e)]
		t.deltaCounts[textKeyFromEvent(e)]++
		if e.GetBranch() == "" && t.concurrentSteps < 2 { // text of parallel agents is not part of the answer
			converted = append(converted, t.answer.addText(e.GetStep(), p.TextDelta.GetText()))
		}
	case *troupev1.Event_ArtifactUpdate:
		converted = append(converted, newArtifactChunk(t.task, p.ArtifactUpdate))
	case *troupev1.Event_TurnResult:
		if c := t.answer.finalChunk(p.TurnResult); c != nil {
			converted = append(converted, c)
		}
	}
	if len(converted) == 0 || e.GetTurnResult() != nil || e.GetTextRetracted() != nil {
		converted = append(converted, t.statusEvent(e))
	}
	at.parent = t.parent
	converted[len(converted)-1].SetMeta(ExtensionURI, EventMetadata{Sequence: e.GetSequence(), TraceID: e.GetTraceId(), Events: translateEvent(e, at)})
	return converted
}

// countDecision counts concurrent steps, which are all decided before the first of them starts. After a takeover
// the new owner decides the unfinished steps again. They still count as concurrent.
func (t *taskStream) countDecision(d *troupev1.RoutingDecision) {
	if d.GetType() == troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION {
		return
	}
	if t.stepStarted && len(t.streamingSteps) < 2 {
		t.concurrentSteps, t.stepStarted = 0, false
	}
	t.concurrentSteps++
}

// trackStep records that the client gets the text of a step from its beginning, if the step began after the subscription.
// A client that subscribed late has missed the routing decisions. For it, trackStep counts the concurrent steps by their
// events.
func (t *taskStream) trackStep(e *troupev1.Event) {
	if e.GetSequence() > t.lastKnownSequence {
		t.streamingSteps[e.GetStep()] = true
		t.concurrentSteps = max(t.concurrentSteps, len(t.streamingSteps))
	}
}

// statusEvent returns the A2A event that shows the state of the task after an event of the mesh. It is the whole
// task if the event begins a turn, and otherwise a status update.
func (t *taskStream) statusEvent(e *troupev1.Event) a2a.Event {
	at := e.GetTime().AsTime()
	if started := e.GetTurnStarted(); started != nil {
		state := a2a.TaskStateSubmitted
		if e.GetTraceId() != string(t.task.TaskID) { // still working
			state = a2a.TaskStateWorking
		}
		return t.newTask(a2a.TaskStatus{State: state, Timestamp: &at}, started.GetText())
	}
	u := a2a.NewStatusUpdateEvent(t.task, a2a.TaskStateWorking, nil)
	u.Status.Timestamp = &at
	if r := e.GetTurnResult(); r != nil {
		u.Status = statusFromResult(t.task, r, at)
	}
	return u
}

// newTask returns the task with the given status. said becomes the text of the user's message if the stream has no
// message.
func (t *taskStream) newTask(s a2a.TaskStatus, said string) *a2a.Task {
	asked := a2a.NewMessageForTask(a2a.MessageRoleUser, t.task, a2a.NewTextPart(said))
	if t.userMessage != nil {
		own := *t.userMessage
		own.TaskID, own.ContextID = t.task.TaskID, t.task.ContextID
		asked = &own
	}
	return &a2a.Task{ID: t.task.TaskID, ContextID: t.task.ContextID, Status: s, History: []*a2a.Message{asked}}
}

// newFinalTask returns the task in its final state. A completed task has the answer as an artifact.
func (t *taskStream) newFinalTask(r *troupev1.TurnResult, said string, at time.Time) *a2a.Task {
	task := t.newTask(statusFromResult(t.task, r, at), said)
	if task.Status.State == a2a.TaskStateCompleted {
		task.Artifacts = []*a2a.Artifact{{ID: answerID, Name: string(answerID), Parts: a2a.ContentParts{a2a.NewTextPart(r.GetText())}}}
	}
	return task
}
