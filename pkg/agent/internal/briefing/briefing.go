// Package briefing prepares what an agent reads before it begins a step: the conversation, its own task, and the
// results of earlier steps.
package briefing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// History returns the messages for the model. First comes the conversation with the agent's own tool rounds, then
// the step's task if it differs from the user's text, then the findings of earlier steps. The findings are a message
// with the role of the user. Its author is the agent that found them, so that the model can tell them from a request.
func History(step execution.Step, tokens int64) []conversation.Message {
	read := Conversation(step, tokens)
	if task := step.Brief(); task != "" {
		read = append(read, conversation.User(task))
	}
	prior := workingSteps(step)
	if len(step.Routes) > 0 || len(prior) == 0 {
		return read
	}
	found := conversation.Message{Role: conversation.RoleUser, Author: prior[len(prior)-1].Agent, Text: formatFindings(step.History, prior)}
	for _, r := range prior {
		found.Untrusted = cmp.Or(found.Untrusted, r.Untrusted)
	}
	return append(read, found)
}

// Prompt returns the request for an agent that does not see the conversation: the user's last text, then the task
// of the step, and then the findings of earlier steps.
func Prompt(step execution.Step) string {
	text := UserPrompt(step)
	if task := step.Brief(); task != "" {
		text += "\n\n" + task
	}
	if prior := workingSteps(step); len(prior) > 0 {
		text += "\n\n" + formatFindings(step.History, prior)
	}
	return text
}

// UserPrompt returns the user's last text.
func UserPrompt(step execution.Step) string {
	for _, m := range slices.Backward(step.History) {
		if m.Role == conversation.RoleUser && m.Author == "" {
			return m.Text
		}
	}
	return ""
}

// WithUserText returns the messages with another text in the user's last message.
func WithUserText(messages []conversation.Message, text string) []conversation.Message {
	for i, m := range slices.Backward(messages) {
		if m.Role == conversation.RoleUser && m.Author == "" {
			m.Text = text
			messages = slices.Clone(messages)
			messages[i] = m
			break
		}
	}
	return messages
}

// UserFiles returns the files of the user's last message, without their content.
func UserFiles(step execution.Step) []conversation.Attachment {
	for _, m := range slices.Backward(step.History) {
		if m.Role == conversation.RoleUser && m.Author == "" {
			return conversation.AttachmentsWithoutData(m.Attachments)
		}
	}
	return nil
}

// Intent returns the task of the step, or the user's last text if the step has no task.
func Intent(step execution.Step) string {
	if step.Task != step.Goal {
		return step.Task
	}
	return UserPrompt(step)
}

// formatFindings returns the observations of the earlier steps. It adds the text of the last step, and the texts
// of others that the conversation does not contain (RA-20).
func formatFindings(said []conversation.Message, prior []execution.Result) string {
	found := strings.Join(execution.Step{Prior: prior}.Observations(), "\n\n")
	if found == "" {
		found = "No observations available."
	}
	text := []string{"What the steps before this one observed:\n\n" + found}
	for i, r := range prior {
		if i == len(prior)-1 || !HasReply(said, r.Text) {
			text = append(text, "What "+r.Agent+" said:\n\n"+r.Text)
		}
	}
	return strings.Join(text, "\n\n")
}

// workingSteps returns the results of the earlier steps, except for steps that only chose a route.
func workingSteps(step execution.Step) []execution.Result {
	var prior []execution.Result
	for _, r := range step.Prior {
		if r.NextAgent == "" && r.Text != "" {
			prior = append(prior, r)
		}
	}
	return prior
}

// LastText returns the text of the previous step (empty if there is none).
func LastText(step execution.Step) string {
	prior := workingSteps(step)
	if len(prior) == 0 {
		return ""
	}
	return prior[len(prior)-1].Text
}

// HasReply reports whether an agent's message after the user's last message has this text.
func HasReply(messages []conversation.Message, text string) bool {
	for _, m := range slices.Backward(messages) {
		switch {
		case m.Role == conversation.RoleAssistant && m.Text == text:
			return true
		case m.Role == conversation.RoleUser && m.Author == "":
			return false
		}
	}
	return false
}

// Confidence returns the confidence in an answer. It grows with the observations of this step and of earlier steps
// (RA-20, C-35). Observations of a step with confidence 0 do not count, because that step failed (RA-26). The
// first working step has no confidence (nil), because it only gathers and does not judge.
func Confidence(step execution.Step, own []string) *float64 {
	prior := workingSteps(step)
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
