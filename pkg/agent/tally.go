package agent

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// MaxObservationBytes is how much of what a tool found is handed to the next step.
const MaxObservationBytes = 4 << 10

// How many tool calls a result lists, and how much of their names: a model may call tools
// that there are not.
const (
	maxToolsCalled = 256
	maxToolName    = 64
)

// tally is what the events of a turn add up to.
type tally struct {
	calls      []event.ToolFinished
	usage      execution.Usage
	iterations int
}

func (t *tally) note(e event.Event) {
	switch p := e.Payload.(type) {
	case event.ToolFinished:
		t.calls = append(t.calls, p)
	case event.ModelCall:
		t.usage = t.usage.Add(p.Usage)
		t.iterations = max(t.iterations, p.Iteration)
	case event.Answer:
		t.iterations = max(t.iterations, p.Iterations)
	}
}

// observations are what the steps after this one get to know of its tool calls: the tool,
// and the beginning of what it found (RA-15). Calls that failed or had nothing to tell
// leave none: confidence counts observations.
func observations(calls []event.ToolFinished) []string {
	var all []string
	for _, c := range calls {
		if c.Status != event.ToolSuccess || c.Result == "" {
			continue
		}
		if len(all) == execution.MaxObservations {
			break
		}
		all = append(all, conversation.Cut("Used tool: "+c.Tool+"\n"+c.Result, MaxObservationBytes))
	}
	return all
}

// toolsCalled are the tools in the order of the calls.
func toolsCalled(calls []event.ToolFinished) []string {
	var names []string
	for _, c := range calls[:min(len(calls), maxToolsCalled)] {
		names = append(names, conversation.Brief(c.Tool, maxToolName))
	}
	return names
}
