package a2a

import (
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// answerID is the one artifact of a task: what its agents say, and at the end its answer.
const answerID a2a.ArtifactID = "answer"

// answer streams what is said as chunks of one artifact. Each step, each round behind a tool
// call, and each attempt begins the artifact anew, so that whatever was said before is no part
// of it; the last chunk leaves the answer of the turn.
type answer struct {
	task  a2a.TaskInfo
	said  strings.Builder // what a client has that kept to the chunks
	step  int32           // whose text it is
	begun bool            // a chunk was sent
	fresh bool            // the next chunk begins anew
}

// delta is the chunk for a piece of text.
func (a *answer) delta(step int32, text string) *a2a.TaskArtifactUpdateEvent {
	if step != a.step || a.fresh {
		a.said.Reset()
		a.step, a.fresh = step, false
	}
	goesOn := a.said.Len() > 0
	a.said.WriteString(text)
	return a.chunk(text, goesOn)
}

// void is the chunk that takes back what a step said; nil when it said nothing.
func (a *answer) void(step int32) *a2a.TaskArtifactUpdateEvent {
	if step != a.step || a.said.Len() == 0 {
		return nil
	}
	a.said.Reset()
	return a.chunk("", false)
}

// restart has the next chunk begin anew, if it is of the step.
func (a *answer) restart(step int32) { a.fresh = a.fresh || step == a.step }

// last is the chunk behind which there is none; nil when nothing was said, and there is no answer.
func (a *answer) last(r *troupev1.TurnResult) *a2a.TaskArtifactUpdateEvent {
	complete := stateOf(r) == a2a.TaskStateCompleted
	if !a.begun && (!complete || r.GetText() == "") {
		return nil
	}
	text, goesOn := "", true
	if complete && a.said.String() != r.GetText() {
		text, goesOn = r.GetText(), false
	}
	c := a.chunk(text, goesOn)
	c.LastChunk = true
	return c
}

func (a *answer) chunk(text string, goesOn bool) *a2a.TaskArtifactUpdateEvent {
	a.begun = true
	c := a2a.NewArtifactUpdateEvent(a.task, answerID, a2a.NewTextPart(text))
	c.Append, c.Artifact.Name = goesOn, string(answerID)
	return c
}
