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

func (s *eventScript) addEvent(step int32, branch string, payload *troupev1.Event) {
	e := newEvent(troupev1.Stage_STAGE_EXECUTE)
	e.Payload, e.Step, e.Branch = payload.GetPayload(), step, branch
	if payload.GetTextDelta() == nil {
		e.Sequence = uint64(len(*s) + 1)
	}
	*s = append(*s, e)
}

func (s *eventScript) startStep(step int32) {
	s.addEvent(step, "", &troupev1.Event{Payload: &troupev1.Event_StepStarted{}})
}

func (s *eventScript) finishStep(step int32) {
	s.addEvent(step, "", &troupev1.Event{Payload: &troupev1.Event_StepFinished{}})
}

// addDecisions adds one routing decision for each of the concurrent steps.
func (s *eventScript) addDecisions(steps int) {
	for range steps {
		s.addEvent(0, "", &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{}})
	}
}

func (s *eventScript) retractText(step int32) {
	s.addEvent(step, "", &troupev1.Event{Payload: &troupev1.Event_TextRetracted{}})
}

func (s *eventScript) streamText(step int32, branch string, texts ...string) {
	for _, text := range texts {
		s.addEvent(step, branch, &troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}}})
	}
}

func (s *eventScript) addModelCall(step, calls int32) {
	s.addEvent(step, "", &troupev1.Event{Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{ToolCalls: calls}}})
}

func (s *eventScript) endTurn(r *troupev1.TurnResult) {
	s.addEvent(0, "", &troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: r}})
}

// chunkReader assembles the chunks of a stream as a client would.
type chunkReader struct {
	text         string
	shownTexts   []string // the assembled text after each chunk
	sawLastChunk bool
	status       a2a.TaskStatus
	deltaIndexes []int
}

func (r *chunkReader) readEvents(t *testing.T, all []a2a.Event) {
	t.Helper()
	for _, told := range all {
		if telling, ok := told.Meta()[ExtensionURI].(EventMetadata); ok {
			for _, item := range telling.Events {
				if item.Kind == "content-delta" {
					r.deltaIndexes = append(r.deltaIndexes, item.Data["index"].(int))
				}
			}
		}
		switch e := told.(type) {
		case *a2a.TaskArtifactUpdateEvent:
			require.False(t, r.sawLastChunk, "a chunk follows the last chunk")
			require.Equal(t, answerID, e.Artifact.ID)
			if !e.Append {
				r.text = ""
			}
			r.text += e.Artifact.Parts[0].Text()
			r.shownTexts = append(r.shownTexts, r.text)
			r.sawLastChunk = e.LastChunk
		case *a2a.TaskStatusUpdateEvent:
			r.status = e.Status
		}
	}
}

func completedResult(text string) *troupev1.TurnResult {
	return &troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, Text: text}
}

// A client that assembles the chunks never shows retracted text, and shows the answer after the last chunk
// (AD-33).
func TestTaskStream_LastChunkLeavesTheAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		since uint64
		play  func(*eventScript)
		shown []string
		state a2a.TaskState
	}{
		"answer streamed in pieces": {0, func(p *eventScript) {
			p.startStep(1)
			p.streamText(1, "", "Red", " it is.")
			p.addModelCall(1, 0)
			p.endTurn(completedResult("Red it is."))
		}, []string{"Red", "Red it is.", "Red it is."}, a2a.TaskStateCompleted},
		"the worker is lost": {0, func(p *eventScript) {
			p.startStep(1)
			p.streamText(1, "", "Blue", " it")
			p.retractText(1)
			p.startStep(1)
			p.streamText(1, "", "Red.")
			p.endTurn(completedResult("Red."))
		}, []string{"Blue", "Blue it", "", "Red.", "Red."}, a2a.TaskStateCompleted},
		"worker lost before it streams text": {0, func(p *eventScript) {
			p.startStep(1)
			p.retractText(1)
			p.streamText(1, "", "Red.")
			p.endTurn(completedResult("Red."))
		}, []string{"Red.", "Red."}, a2a.TaskStateCompleted},
		"tool call before the answer": {0, func(p *eventScript) {
			p.startStep(1)
			p.streamText(1, "", "Let me look.")
			p.addModelCall(1, 1)
			p.streamText(1, "", "Red.")
			p.endTurn(completedResult("Red."))
		}, []string{"Let me look.", "Red.", "Red."}, a2a.TaskStateCompleted},
		"second agent gives the answer": {0, func(p *eventScript) {
			p.startStep(1)
			p.streamText(1, "", "Blue?")
			p.finishStep(1)
			p.startStep(2)
			p.streamText(2, "", "Red.")
			p.endTurn(completedResult("Red."))
		}, []string{"Blue?", "Red.", "Red."}, a2a.TaskStateCompleted},
		"answer differs from the streamed text": {0, func(p *eventScript) {
			p.startStep(1)
			p.streamText(1, "", "Blue.")
			p.endTurn(completedResult("Red."))
		}, []string{"Blue.", "Red."}, a2a.TaskStateCompleted},
		"parallel agents stream text": {0, func(p *eventScript) {
			p.startStep(1)
			p.streamText(1, "both.a", "Bl")
			p.streamText(1, "both.b", "Re")
			p.streamText(1, "both.a", "ue")
			p.endTurn(completedResult("Red."))
		}, []string{"Red."}, a2a.TaskStateCompleted},
		"concurrent steps": {0, func(p *eventScript) {
			p.addDecisions(3)
			p.startStep(1)
			p.streamText(1, "", "Bl")
			p.startStep(2)
			p.startStep(3)
			p.streamText(2, "", "Green.")
			p.addModelCall(1, 1)
			p.retractText(3)
			p.streamText(1, "", "Blue.")
			p.finishStep(1)
			p.finishStep(2)
			p.streamText(3, "", "Yellow.")
			p.finishStep(3)
			p.addDecisions(1)
			p.startStep(4)
			p.streamText(4, "", "Red", ".")
			p.finishStep(4)
			p.endTurn(completedResult("Red."))
		}, []string{"Red", "Red.", "Red."}, a2a.TaskStateCompleted},
		"owner of concurrent steps lost": {0, func(p *eventScript) {
			p.addDecisions(2)
			p.startStep(1)
			p.startStep(2)
			p.retractText(1)
			p.retractText(2)
			p.addDecisions(1)
			p.streamText(1, "", "Blue.")
			p.finishStep(1)
			p.addDecisions(1)
			p.startStep(2)
			p.retractText(2)
			p.finishStep(2)
			p.addDecisions(1)
			p.startStep(3)
			p.retractText(3) // the owner of the step after them is lost too
			p.addDecisions(1)
			p.streamText(3, "", "Red.")
			p.finishStep(3)
			p.endTurn(completedResult("Red."))
		}, []string{"Red.", "Red."}, a2a.TaskStateCompleted},
		"client subscribed after concurrent steps": {4, func(p *eventScript) {
			p.addDecisions(2)
			p.startStep(1)
			p.startStep(2)
			p.addModelCall(1, 1)
			p.addModelCall(2, 1)
			p.streamText(1, "", "Blue.")
			p.finishStep(1)
			p.streamText(2, "", "Green.")
			p.finishStep(2)
			p.endTurn(completedResult("Red."))
		}, []string{"Red."}, a2a.TaskStateCompleted},
		"client subscribed after the step started": {1, func(p *eventScript) {
			p.startStep(1)
			p.streamText(1, "", "it is.")
			p.addModelCall(1, 1)
			p.streamText(1, "", "Red", ".")
			p.endTurn(completedResult("Red."))
		}, []string{"Red", "Red.", "Red."}, a2a.TaskStateCompleted},
		"it fails": {0, func(p *eventScript) {
			p.startStep(1)
			p.streamText(1, "", "Bl")
			p.endTurn(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Failure: &troupev1.Failure{Message: "It broke."}})
		}, []string{"Bl", "Bl"}, a2a.TaskStateFailed},
		"turn fails before any text": {0, func(p *eventScript) {
			p.endTurn(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Failure: &troupev1.Failure{Message: "It broke."}})
		}, nil, a2a.TaskStateFailed},
		"it asks": {0, func(p *eventScript) {
			p.startStep(1)
			p.endTurn(&troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, Text: "Which?"})
		}, nil, a2a.TaskStateInputRequired},
	} {
		t.Run(name, func(t *testing.T) {
			var p eventScript
			tc.play(&p)
			teller, got := newTaskStream(a2a.TaskInfo{TaskID: taskID, ContextID: "s1"}, nil), &chunkReader{}
			teller.lastKnownSequence = tc.since
			for _, e := range p {
				require.Equal(t, a2a.TaskState(""), finalState(got), "an event follows the final state")
				got.readEvents(t, teller.convert(e))
			}
			require.Equal(t, tc.shown, got.shownTexts)
			require.Equal(t, tc.shown != nil, got.sawLastChunk)
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
	p.startStep(1)
	p.streamText(1, "both.a", "x", "y")
	p.streamText(1, "both.b", "x")
	p.streamText(1, "both.a", "z")
	p.streamText(1, "", "x", "y")
	p.addModelCall(1, 1)
	p.streamText(1, "", "x", "y")
	p.retractText(1)
	p.streamText(1, "both.a", "x")
	teller, got := newTaskStream(a2a.TaskInfo{TaskID: taskID, ContextID: "s1"}, nil), &chunkReader{}
	for _, e := range p {
		got.readEvents(t, teller.convert(e))
	}
	require.Equal(t, []int{0, 1, 0, 2, 0, 1, 0, 1, 0}, got.deltaIndexes)
}

// The text of all concurrent steps is streamed, even if they run the same agent. A retry of one step does not
// affect the others.
func TestTaskStream_StreamsConcurrentSteps(t *testing.T) {
	var p eventScript
	p.addDecisions(3)
	p.startStep(1)
	p.startStep(2)
	p.startStep(3)
	p.streamText(1, "", "x", "y")
	p.streamText(2, "", "x")
	p.streamText(3, "", "x")
	p.addModelCall(1, 1)
	p.streamText(1, "", "x")
	p.retractText(2)
	p.streamText(2, "", "x", "y")
	p.finishStep(1)
	p.streamText(3, "", "y")
	teller, got := newTaskStream(a2a.TaskInfo{TaskID: taskID, ContextID: "s1"}, nil), &chunkReader{}
	for _, e := range p {
		got.readEvents(t, teller.convert(e))
	}
	require.Equal(t, []int{0, 1, 0, 0, 0, 0, 1, 1}, got.deltaIndexes)
	require.Empty(t, got.shownTexts, "none of it is the answer")
}

// A failure takes precedence over a question, and a question over an answer.
//
// Req: AD-33
func TestStateFromResult_PrefersFailureThenQuestion(t *testing.T) {
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
		require.Equal(t, want[0], stateFromResult(&troupev1.TurnResult{Outcome: outcome}), outcome)
		require.Equal(t, want[1], stateFromResult(&troupev1.TurnResult{Outcome: outcome, Pending: waits}), outcome)
		require.Equal(t, want[2], stateFromResult(&troupev1.TurnResult{Outcome: outcome, Pending: waits, Failure: broke}), outcome)
	}
}
