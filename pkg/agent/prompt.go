package agent

import (
	"cmp"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// history is what the model reads: the window of the conversation as it is, behind it what the
// step is asked to do when that is something else, and then what the steps before this one found.
// The last is a message of the user's side whose author is the agent that found it, which tells it
// from what is asked.
func history(step execution.Step) []conversation.Message {
	read := slices.Clip(step.History)
	if asked := step.Brief(); asked != "" {
		read = append(read, conversation.User(asked))
	}
	prior := worked(step)
	if len(step.Routes) > 0 || len(prior) == 0 {
		return read
	}
	found := conversation.Message{Role: conversation.RoleUser, Author: prior[len(prior)-1].Agent, Text: briefing(step.History, prior)}
	for _, r := range prior {
		found.Untrusted = cmp.Or(found.Untrusted, r.Untrusted)
	}
	return append(read, found)
}

// reads notes what the step is given that neither the user nor the author wrote. It counts whether or
// not a model reads all of it.
func (t *turn) reads() {
	t.control.Conversation.MarkMessagesRead()
	for _, r := range t.inv.Step.Prior {
		t.control.Conversation.MarkRead(r.Untrusted)
	}
}

// briefing is what the steps before found and said last (RA-20), and what those in branches
// said, which is not in the conversation.
func briefing(said []conversation.Message, prior []execution.Result) string {
	found := strings.Join(execution.Step{Prior: prior}.Observations(), "\n\n")
	if found == "" {
		found = "No observations available."
	}
	text := []string{"What the steps before this one observed:\n\n" + found}
	for i, r := range prior {
		if i == len(prior)-1 || !spoken(said, r.Text) {
			text = append(text, "What "+r.Agent+" said:\n\n"+r.Text)
		}
	}
	return strings.Join(text, "\n\n")
}

// worked are the steps before this one that did more than decide where to go.
func worked(step execution.Step) []execution.Result {
	var prior []execution.Result
	for _, r := range step.Prior {
		if r.NextAgent == "" && r.Text != "" {
			prior = append(prior, r)
		}
	}
	return prior
}

// lastText is what the step before said, or empty.
func lastText(step execution.Step) string {
	prior := worked(step)
	if len(prior) == 0 {
		return ""
	}
	return prior[len(prior)-1].Text
}

// confidence in an answer grows with what it rests on: the observations of this step and
// of those before it (RA-20, C-35). A step before that gave confidence 0 failed, so its
// observations count nothing (RA-26). It is nil for the first step that works: that one
// gathers, and does not judge.
func confidence(step execution.Step, own []string) *float64 {
	prior := worked(step)
	if len(prior) == 0 {
		return nil
	}
	n := len(own)
	for _, r := range prior {
		if r.Confidence == nil || *r.Confidence > 0 {
			n += len(r.Observations)
		}
	}
	table := [...]float64{0, 0.6, 0.8, 0.95}
	c := table[min(n, len(table)-1)]
	return &c
}

// lead puts messages in front of all that the model reads.
func (t *turn) lead(told []conversation.Message) error {
	if len(told) == 0 {
		return nil
	}
	turn := t.control.Turn()
	return turn.Replace(append(told, turn.Messages()...))
}
