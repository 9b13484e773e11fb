// Package event is what happens inside a step, in the order in which it happens. The
// mesh numbers and stores these events; this package knows nothing of that.
package event

import (
	"time"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// Event is one thing that happened. Its type says what.
type Event interface{ event() }

// TextDelta is a piece of text as the model says it. It is not stored.
type TextDelta struct{ Text string }

// ModelCall is one finished call of a model (CO-44).
type ModelCall struct {
	Model     string
	Iteration int // within the step, from 1
	ToolCalls int // how many tools the model asked for
	Usage     execution.Usage
	Duration  time.Duration
}

// ToolStarted says that a tool begins to run.
type ToolStarted struct {
	CallID    string
	Tool      string
	Arguments string // a JSON object
}

// ToolStatus says how a tool call ended.
type ToolStatus string

// The ways in which a tool call can end (CO-45), and the one that a lost worker adds.
const (
	ToolSuccess        ToolStatus = "success"
	ToolError          ToolStatus = "error"
	ToolNotFound       ToolStatus = "not_found"
	ToolUnknownOutcome ToolStatus = "unknown_outcome" // it may run once, and nobody knows whether it did
)

// MaxSummary is the length of ToolFinished.Summary in characters (CO-47).
const MaxSummary = 240

// ToolFinished says how a tool call ended. There is exactly one per ToolStarted.
type ToolFinished struct {
	CallID   string
	Tool     string
	Status   ToolStatus
	Summary  string // of the result, or the error
	Duration time.Duration
}

// Warning is something a person should know; the step goes on.
type Warning struct {
	Reason  string // UPPER_SNAKE, for programs
	Message string // one sentence, for a person
}

func (TextDelta) event()    {}
func (ModelCall) event()    {}
func (ToolStarted) event()  {}
func (ToolFinished) event() {}
func (Warning) event()      {}
