package agent

import (
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/loop"
)

// MaxObservationBytes is how much of what a tool found is handed to the next step.
const MaxObservationBytes = 4 << 10

// How many tool calls a result lists, and how much of their names: a model may call tools
// that there are not.
const (
	maxToolsCalled = 256
	maxToolName    = 64
)

// prompt is what the loop is given: the window of the conversation as it is, and after it
// what the steps before this one found. The latter is a message of the user's side whose
// author is the agent that found it, which tells it from what the user said.
func (a *Agent) prompt(step execution.Step) loop.Input {
	in := loop.Input{
		System:   a.config.Instructions,
		Messages: append([]conversation.Message(nil), step.History...),
		Choices:  step.Routes,
	}
	if prior := worked(step); len(step.Routes) == 0 && len(prior) > 0 {
		in.Messages = append(in.Messages, conversation.Message{
			Role:   conversation.RoleUser,
			Author: prior[len(prior)-1].Agent,
			Text:   briefing(prior),
		})
	}
	return in
}

// briefing is what the steps before found and said last (RA-20).
func briefing(prior []execution.Result) string {
	found := strings.Join(execution.Step{Prior: prior}.Observations(), "\n\n")
	if found == "" {
		found = "No observations available."
	}
	last := prior[len(prior)-1]
	return "What the steps before this one observed:\n\n" + found +
		"\n\nWhat " + last.Agent + " said:\n\n" + last.Text
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

// observations are what the steps after this one get to know of its tool calls: the tool,
// and the beginning of what it found (RA-15). Calls that failed or had nothing to tell
// leave none: confidence counts observations.
func observations(calls []loop.Call) []string {
	var all []string
	for _, c := range calls {
		if c.Status != event.ToolSuccess || c.Text == "" {
			continue
		}
		if len(all) == execution.MaxObservations {
			break
		}
		all = append(all, conversation.Cut("Used tool: "+c.Tool+"\n"+c.Text, MaxObservationBytes))
	}
	return all
}

// toolsCalled are the tools in the order of the calls.
func toolsCalled(calls []loop.Call) []string {
	var names []string
	for _, c := range calls[:min(len(calls), maxToolsCalled)] {
		names = append(names, conversation.Brief(c.Tool, maxToolName))
	}
	return names
}
