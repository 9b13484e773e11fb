package a2a

import (
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// answerID is the id of the artifact that every task has. It holds the streamed text of the agents, and finally the answer.
const answerID a2a.ArtifactID = "answer"

// answerStream streams text as chunks of one artifact. Each step, each model call after a tool call, and each
// attempt restarts the artifact, which discards its earlier text. After the last chunk the artifact contains the
// answer of the turn.
type answerStream struct {
	task           a2a.TaskInfo
	sent           strings.Builder // text of the artifact after the chunks sent so far
	step           int32           // step of the current text
	started        bool            // whether a chunk was sent
	restartPending bool            // whether the next chunk restarts the artifact
}

// addText returns the chunk that adds text of a step to the artifact.
func (a *answerStream) addText(step int32, text string) *a2a.TaskArtifactUpdateEvent {
	if step != a.step || a.restartPending {
		a.sent.Reset()
		a.step, a.restartPending = step, false
	}
	goesOn := a.sent.Len() > 0
	a.sent.WriteString(text)
	return a.newChunk(text, goesOn)
}

// retract returns the chunk that discards the text of a step (nil if no text of the step was sent).
func (a *answerStream) retract(step int32) *a2a.TaskArtifactUpdateEvent {
	if step != a.step || a.sent.Len() == 0 {
		return nil
	}
	a.sent.Reset()
	return a.newChunk("", false)
}

// scheduleRestart makes the next chunk restart the artifact, if the current text belongs to the step.
func (a *answerStream) scheduleRestart(step int32) {
	a.restartPending = a.restartPending || step == a.step
}

// finalChunk returns the last chunk of the artifact (nil if no text was sent and the turn has no answer).
func (a *answerStream) finalChunk(r *troupev1.TurnResult) *a2a.TaskArtifactUpdateEvent {
	complete := stateFromResult(r) == a2a.TaskStateCompleted
	if !a.started && (!complete || r.GetText() == "") {
		return nil
	}
	text, goesOn := "", true
	if complete && a.sent.String() != r.GetText() {
		text, goesOn = r.GetText(), false
	}
	c := a.newChunk(text, goesOn)
	c.LastChunk = true
	return c
}

func (a *answerStream) newChunk(text string, goesOn bool) *a2a.TaskArtifactUpdateEvent {
	a.started = true
	c := a2a.NewArtifactUpdateEvent(a.task, answerID, a2a.NewTextPart(text))
	c.Append, c.Artifact.Name = goesOn, string(answerID)
	return c
}
