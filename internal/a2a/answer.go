package a2a

import (
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// answerID is the one artifact of a task: what its agents say, and at the end its answer.
const answerID a2a.ArtifactID = "answer"

// answerStream streams what is said as chunks of one artifact. Each step, each round behind a tool
// call, and each attempt begins the artifact anew, so that whatever was said before is no part
// of it; the last chunk leaves the answer of the turn.
type answerStream struct {
	task       a2a.TaskInfo
	sent       strings.Builder // what a client has that kept to the chunks
	step       int32           // whose text it is
	started    bool            // a chunk was sent
	restarting bool            // the next chunk begins anew
}

// delta is the chunk for a piece of text.
func (a *answerStream) delta(step int32, text string) *a2a.TaskArtifactUpdateEvent {
	if step != a.step || a.restarting {
		a.sent.Reset()
		a.step, a.restarting = step, false
	}
	goesOn := a.sent.Len() > 0
	a.sent.WriteString(text)
	return a.chunk(text, goesOn)
}

// retract is the chunk that takes back what a step said; nil when it said nothing.
func (a *answerStream) retract(step int32) *a2a.TaskArtifactUpdateEvent {
	if step != a.step || a.sent.Len() == 0 {
		return nil
	}
	a.sent.Reset()
	return a.chunk("", false)
}

// restart has the next chunk begin anew, if it is of the step.
func (a *answerStream) restart(step int32) { a.restarting = a.restarting || step == a.step }

// final is the chunk behind which there is none; nil when nothing was said, and there is no answer.
func (a *answerStream) final(r *troupev1.TurnResult) *a2a.TaskArtifactUpdateEvent {
	complete := stateOf(r) == a2a.TaskStateCompleted
	if !a.started && (!complete || r.GetText() == "") {
		return nil
	}
	text, goesOn := "", true
	if complete && a.sent.String() != r.GetText() {
		text, goesOn = r.GetText(), false
	}
	c := a.chunk(text, goesOn)
	c.LastChunk = true
	return c
}

func (a *answerStream) chunk(text string, goesOn bool) *a2a.TaskArtifactUpdateEvent {
	a.started = true
	c := a2a.NewArtifactUpdateEvent(a.task, answerID, a2a.NewTextPart(text))
	c.Append, c.Artifact.Name = goesOn, string(answerID)
	return c
}
