package a2a

import (
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// eventScript builds the events of one turn for a test.
type eventScript []*troupev1.Event

func (p *eventScript) add(step int32, branch string, payload *troupev1.Event) {
	e := newEvent(troupev1.Stage_STAGE_EXECUTE)
	e.Payload, e.Step, e.Branch = payload.GetPayload(), step, branch
	if payload.GetTextDelta() == nil {
		e.Sequence = uint64(len(*p) + 1)
	}
	*p = append(*p, e)
}

func (p *eventScript) begin(step int32) {
	p.add(step, "", &troupev1.Event{Payload: &troupev1.Event_StepStarted{}})
}

func (p *eventScript) finish(step int32) {
	p.add(step, "", &troupev1.Event{Payload: &troupev1.Event_StepFinished{}})
}

// addDecisions adds one routing decision for each of the concurrent steps.
func (p *eventScript) decide(steps int) {
	for range steps {
		p.add(0, "", &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{}})
	}
}

func (p *eventScript) void(step int32) {
	p.add(step, "", &troupev1.Event{Payload: &troupev1.Event_TextRetracted{}})
}

func (p *eventScript) say(step int32, branch string, texts ...string) {
	for _, text := range texts {
		p.add(step, branch, &troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}}})
	}
}

func (p *eventScript) model(step, calls int32) {
	p.add(step, "", &troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{ToolCalls: calls}}})
}

func (p *eventScript) end(r *troupev1.TurnResult) {
	p.add(0, "", &troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: r}})
}

// chunkReader assembles the chunks of a stream as a client would.
type chunkReader struct {
	text   string
	shown  []string // the assembled text after each chunk
	last   bool
	status a2a.TaskStatus
	deltas []int
}

func (r *chunkReader) read(t *testing.T, all []a2a.Event) {
	t.Helper()
	for _, told := range all {
		if telling, ok := told.Meta()[Extension].(EventMetadata); ok {
			for _, item := range telling.Events {
				if item.Kind == "content-delta" {
					r.deltas = append(r.deltas, item.Data["index"].(int))
				}
			}
		}
		switch e := told.(type) {
		case *a2a.TaskArtifactUpdateEvent:
			require.False(t, r.last, "a chunk follows the last chunk")
			require.Equal(t, answerID, e.Artifact.ID)
			if !e.Append {
				r.text = ""
			}
			r.text += e.Artifact.Parts[0].Text()
			r.shown = append(r.shown, r.text)
			r.last = e.LastChunk
		case *a2a.TaskStatusUpdateEvent:
			r.status = e.Status
		}
	}
}

func answerOf(text string) *troupev1.TurnResult {
	return &troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, Text: text}
}

// A client that assembles the chunks never shows retracted text, and shows the answer after the last chunk
// (AD-33).
func TestTaskStream_EndsWithTheAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		since uint64
		play  func(*eventScript)
		shown []string
		state a2a.TaskState
	}{
		"it is said piece by piece": {0, func(p *eventScript) {
			p.begin(1)
			p.say(1, "", "Red", " it is.")
			p.model(1, 0)
			p.end(answerOf("Red it is."))
		}, []string{"Red", "Red it is.", "Red it is."}, a2a.TaskStateCompleted},
		"the worker is lost": {0, func(p *eventScript) {
			p.begin(1)
			p.say(1, "", "Blue", " it")
			p.void(1)
			p.begin(1)
			p.say(1, "", "Red.")
			p.end(answerOf("Red."))
		}, []string{"Blue", "Blue it", "", "Red.", "Red."}, a2a.TaskStateCompleted},
		"the worker is lost before it says anything": {0, func(p *eventScript) {
			p.begin(1)
			p.void(1)
			p.say(1, "", "Red.")
			p.end(answerOf("Red."))
		}, []string{"Red.", "Red."}, a2a.TaskStateCompleted},
		"a tool is asked first": {0, func(p *eventScript) {
			p.begin(1)
			p.say(1, "", "Let me look.")
			p.model(1, 1)
			p.say(1, "", "Red.")
			p.end(answerOf("Red."))
		}, []string{"Let me look.", "Red.", "Red."}, a2a.TaskStateCompleted},
		"another agent has the last word": {0, func(p *eventScript) {
			p.begin(1)
			p.say(1, "", "Blue?")
			p.finish(1)
			p.begin(2)
			p.say(2, "", "Red.")
			p.end(answerOf("Red."))
		}, []string{"Blue?", "Red.", "Red."}, a2a.TaskStateCompleted},
		"the answer is not what was said last": {0, func(p *eventScript) {
			p.begin(1)
			p.say(1, "", "Blue.")
			p.end(answerOf("Red."))
		}, []string{"Blue.", "Red."}, a2a.TaskStateCompleted},
		"parallel agents speak": {0, func(p *eventScript) {
			p.begin(1)
			p.say(1, "both.a", "Bl")
			p.say(1, "both.b", "Re")
			p.say(1, "both.a", "ue")
			p.end(answerOf("Red."))
		}, []string{"Red."}, a2a.TaskStateCompleted},
		"steps run at once": {0, func(p *eventScript) {
			p.decide(3)
			p.begin(1)
			p.say(1, "", "Bl")
			p.begin(2)
			p.begin(3)
			p.say(2, "", "Green.")
			p.model(1, 1)
			p.void(3)
			p.say(1, "", "Blue.")
			p.finish(1)
			p.finish(2)
			p.say(3, "", "Yellow.")
			p.finish(3)
			p.decide(1)
			p.begin(4)
			p.say(4, "", "Red", ".")
			p.finish(4)
			p.end(answerOf("Red."))
		}, []string{"Red", "Red.", "Red."}, a2a.TaskStateCompleted},
		"the owner of steps that run at once is lost": {0, func(p *eventScript) {
			p.decide(2)
			p.begin(1)
			p.begin(2)
			p.void(1)
			p.void(2)
			p.decide(1)
			p.say(1, "", "Blue.")
			p.finish(1)
			p.decide(1)
			p.begin(2)
			p.void(2)
			p.finish(2)
			p.decide(1)
			p.begin(3)
			p.void(3) // the owner of the step after them is lost too
			p.decide(1)
			p.say(3, "", "Red.")
			p.finish(3)
			p.end(answerOf("Red."))
		}, []string{"Red.", "Red."}, a2a.TaskStateCompleted},
		"the stream began after parallel steps": {4, func(p *eventScript) {
			p.decide(2)
			p.begin(1)
			p.begin(2)
			p.model(1, 1)
			p.model(2, 1)
			p.say(1, "", "Blue.")
			p.finish(1)
			p.say(2, "", "Green.")
			p.finish(2)
			p.end(answerOf("Red."))
		}, []string{"Red."}, a2a.TaskStateCompleted},
		"the stream began after the step": {1, func(p *eventScript) {
			p.begin(1)
			p.say(1, "", "it is.")
			p.model(1, 1)
			p.say(1, "", "Red", ".")
			p.end(answerOf("Red."))
		}, []string{"Red", "Red.", "Red."}, a2a.TaskStateCompleted},
		"it fails": {0, func(p *eventScript) {
			p.begin(1)
			p.say(1, "", "Bl")
			p.end(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Failure: &troupev1.Failure{Message: "It broke."}})
		}, []string{"Bl", "Bl"}, a2a.TaskStateFailed},
		"it fails before anything is said": {0, func(p *eventScript) {
			p.end(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Failure: &troupev1.Failure{Message: "It broke."}})
		}, nil, a2a.TaskStateFailed},
		"it asks": {0, func(p *eventScript) {
			p.begin(1)
			p.end(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, Text: "Which?"})
		}, nil, a2a.TaskStateInputRequired},
	} {
		t.Run(name, func(t *testing.T) {
			var p eventScript
			tc.play(&p)
			teller, got := newTaskStream(a2a.TaskInfo{TaskID: taskID, ContextID: "s1"}, nil), &chunkReader{}
			teller.knownUpTo = tc.since
			for _, e := range p {
				require.Equal(t, a2a.TaskState(""), finalState(got), "an event follows the final state")
				got.read(t, teller.convert(e))
			}
			require.Equal(t, tc.shown, got.shown)
			require.Equal(t, tc.shown != nil, got.last)
			require.Equal(t, tc.state, got.status.State)
		})
	}
}

// finalState returns the final state of a task ("" while the task is working).
func finalState(r *chunkReader) a2a.TaskState {
	if r.status.State == a2a.TaskStateWorking {
		return ""
	}
	return r.status.State
}

// Deltas are numbered from the beginning of their text, separately for each agent.
func TestTaskStream_NumbersDeltas(t *testing.T) {
	var p eventScript
	p.begin(1)
	p.say(1, "both.a", "x", "y")
	p.say(1, "both.b", "x")
	p.say(1, "both.a", "z")
	p.say(1, "", "x", "y")
	p.model(1, 1)
	p.say(1, "", "x", "y")
	p.void(1)
	p.say(1, "both.a", "x")
	teller, got := newTaskStream(a2a.TaskInfo{TaskID: taskID, ContextID: "s1"}, nil), &chunkReader{}
	for _, e := range p {
		got.read(t, teller.convert(e))
	}
	require.Equal(t, []int{0, 1, 0, 2, 0, 1, 0, 1, 0}, got.deltas)
}

// The text of all concurrent steps is streamed, even if they run the same agent. A retry of one step does not
// affect the others.
func TestTaskStream_StreamsConcurrentSteps(t *testing.T) {
	var p eventScript
	p.decide(3)
	p.begin(1)
	p.begin(2)
	p.begin(3)
	p.say(1, "", "x", "y")
	p.say(2, "", "x")
	p.say(3, "", "x")
	p.model(1, 1)
	p.say(1, "", "x")
	p.void(2)
	p.say(2, "", "x", "y")
	p.finish(1)
	p.say(3, "", "y")
	teller, got := newTaskStream(a2a.TaskInfo{TaskID: taskID, ContextID: "s1"}, nil), &chunkReader{}
	for _, e := range p {
		got.read(t, teller.convert(e))
	}
	require.Equal(t, []int{0, 1, 0, 0, 0, 0, 1, 1}, got.deltas)
	require.Empty(t, got.shown, "none of it is the answer")
}

// A failure takes precedence over a question, and a question over an answer.
//
// Req: AD-33
func TestStateOf_ByPriority(t *testing.T) {
	broke := &troupev1.Failure{Message: "It broke."}
	waits := []*troupev1.PendingCall{{Id: "1-1", Until: timestamppb.New(noon)}}
	for outcome, want := range map[troupev1.TurnOutcome][3]a2a.TaskState{ // outcome alone, with pending calls, and also with a failure
		troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED:      {a2a.TaskStateCompleted, a2a.TaskStateInputRequired, a2a.TaskStateFailed},
		troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED: {a2a.TaskStateInputRequired, a2a.TaskStateInputRequired, a2a.TaskStateFailed},
		troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED:  {a2a.TaskStateAuthRequired, a2a.TaskStateAuthRequired, a2a.TaskStateFailed},
		troupev1.TurnOutcome_TURN_OUTCOME_FAILED:         {a2a.TaskStateFailed, a2a.TaskStateFailed, a2a.TaskStateFailed},
		troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED:      {a2a.TaskStateCanceled, a2a.TaskStateCanceled, a2a.TaskStateCanceled},
		troupev1.TurnOutcome_TURN_OUTCOME_UNSPECIFIED:    {a2a.TaskStateWorking, a2a.TaskStateInputRequired, a2a.TaskStateFailed},
	} {
		require.Equal(t, want[0], stateOf(&troupev1.TurnResult{Outcome: outcome}), outcome)
		require.Equal(t, want[1], stateOf(&troupev1.TurnResult{Outcome: outcome, Pending: waits}), outcome)
		require.Equal(t, want[2], stateOf(&troupev1.TurnResult{Outcome: outcome, Pending: waits, Failure: broke}), outcome)
	}
}
