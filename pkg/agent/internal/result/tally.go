// Package result makes parts of the result of a step: the tally of what happened, the route that a model chose,
// and the form in which the answer is stored in the session's state.
package result

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// MaxObservationBytes is how much of a tool result is passed on to the next step.
const MaxObservationBytes = 4 << 10

// Limits of the tool calls that a result lists. A model may call tools that do not exist, with names of any length.
const (
	maxToolsCalled = 256
	maxToolName    = 64
)

// Tally adds up what happened while an agent ran: tools, observations, usage and iterations.
type Tally struct {
	Tools           []string // names of the tools that were called, in order
	Observations    []string // what tools found, in order
	Usage           execution.Usage
	ownIterations   int // iterations of the agent itself
	childIterations int // iterations of the agents that it ran
}

// Iterations returns the iterations of the agent and of the agents that it ran.
func (t *Tally) Iterations() int { return t.ownIterations + t.childIterations }

// AddEvent counts an event of the agent itself.
func (t *Tally) AddEvent(e event.Event) {
	switch p := e.Payload.(type) {
	case event.ToolFinished:
		t.addTools(p.Tool)
		t.addObservation(p)
	case event.ModelCall:
		t.Usage = t.Usage.Add(p.Usage)
		t.ownIterations = max(t.ownIterations, p.Iteration)
	case event.Answer:
		t.ownIterations = max(t.ownIterations, p.Iterations)
	}
}

// AddResult adds the result of an agent that ran inside this one.
func (t *Tally) AddResult(r execution.Result) {
	t.Usage = t.Usage.Add(r.Usage)
	t.childIterations += r.Iterations
	t.addTools(r.ToolsCalled...)
	t.Observations = append(t.Observations, r.Observations...)
	t.Observations = t.Observations[:min(len(t.Observations), execution.MaxObservations)]
}

// addObservation records a tool and the beginning of its result for later steps (RA-15). It skips calls that
// failed or returned nothing, because the confidence depends on the number of observations.
func (t *Tally) addObservation(c event.ToolFinished) {
	if c.Status != event.ToolSuccess || c.Result == "" || len(t.Observations) == execution.MaxObservations {
		return
	}
	t.Observations = append(t.Observations, conversation.Truncate("Used tool: "+c.Tool+"\n"+c.Result, MaxObservationBytes))
}

func (t *Tally) addTools(tools ...string) {
	for _, name := range tools[:min(len(tools), maxToolsCalled-len(t.Tools))] {
		t.Tools = append(t.Tools, conversation.Excerpt(name, maxToolName))
	}
}
