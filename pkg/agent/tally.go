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
	tools      []string // that were called, in order
	found      []string // observations
	usage      execution.Usage
	iterations int
	below      int // iterations of agents that this one ran
}

// note counts an event of the agent itself.
func (t *tally) note(e event.Event) {
	switch p := e.Payload.(type) {
	case event.ToolFinished:
		t.called(p.Tool)
		t.observed(p)
	case event.ModelCall:
		t.usage = t.usage.Add(p.Usage)
		t.iterations = max(t.iterations, p.Iteration)
	case event.Answer:
		t.iterations = max(t.iterations, p.Iterations)
	}
}

// add counts what an agent led to that this one ran.
func (t *tally) add(r execution.Result) {
	t.usage = t.usage.Add(r.Usage)
	t.below += r.Iterations
	t.called(r.ToolsCalled...)
	t.found = append(t.found, r.Observations...)
	t.found = t.found[:min(len(t.found), execution.MaxObservations)]
}

// observed notes what the steps after this one get to know of a tool call: the tool, and the
// beginning of what it found (RA-15). Calls that failed or had nothing to tell leave nothing:
// confidence counts observations.
func (t *tally) observed(c event.ToolFinished) {
	if c.Status != event.ToolSuccess || c.Result == "" || len(t.found) == execution.MaxObservations {
		return
	}
	t.found = append(t.found, conversation.Cut("Used tool: "+c.Tool+"\n"+c.Result, MaxObservationBytes))
}

func (t *tally) called(tools ...string) {
	for _, name := range tools[:min(len(tools), maxToolsCalled-len(t.tools))] {
		t.tools = append(t.tools, conversation.Brief(name, maxToolName))
	}
}
