// Package event defines the events of a running agent. In order they form the entries of its trace, and they show
// clients what the agent does. The mesh numbers and stores them for clients.
package event

import (
	"strconv"
	"time"
)

// Event reports one thing that happened while an agent ran. Its payload describes it.
type Event struct {
	Invocation string // id of the turn; with Step and Sequence it identifies the event (AD-22, CO-47)
	Step       int    // number of the step in the turn, from 1
	Sequence   int    // number within the attempt of the step, from 1
	Time       time.Time
	Author     string // the agent that reports it
	Branch     string // the path of the agent in its flow, such as "a.b" (empty for an agent that runs alone)
	Payload
}

// ID returns an id that is unique among the events of a session.
func (e Event) ID() string {
	return e.Invocation + "/" + strconv.Itoa(e.Step) + "/" + strconv.Itoa(e.Sequence)
}

// Payload is the content of an event.
type Payload interface {
	// Kind returns the name of the kind in traces and logs (CO-43 to CO-48). Clients do not get kinds that begin
	// with "internal:" (LP-24).
	Kind() string
}

// InternalPrefix is the prefix of the kinds that clients do not get. The other constants are limits of events.
const (
	InternalPrefix = "internal:"

	MaxSummaryChars = 240      // characters of ToolFinished.Summary (CO-47)
	MaxUpdateBytes  = 64 << 10 // bytes of an artifact's content in its ArtifactUpdates
	MaxCustomData   = 64 << 10 // bytes of Custom.Data
	MaxCustomEvents = 256      // Custom events of an attempt of a step
	MaxCustomBytes  = 1 << 20  // names and data of these together
)

// Final reports whether an event is part of the answer, which means that it carries text of the agent. An event
// that only changes state is not part of the answer (AD-14).
func (e Event) Final() bool {
	switch p := e.Payload.(type) {
	case Message:
		return p.Text != ""
	case Answer:
		return true
	default:
		return false
	}
}
