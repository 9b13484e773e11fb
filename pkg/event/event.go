// Package event describes what happens while an agent works, in order: the entries of its trace, and what a client sees
// meanwhile. The mesh numbers and stores the events for clients.
package event

import (
	"strconv"
	"time"
)

// Event is one thing that happened while an agent ran. Its payload says what.
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
	// Kind returns the name in traces and logs (CO-43 to CO-48). Kinds that begin
	// with "internal:" are not for clients (LP-24).
	Kind() string
}

// Internal is the prefix of the kinds that are not for clients.
const Internal = "internal:"

// Final reports whether an event is part of the answer, which means that it has text of the agent. An event that
// only changes state is not (AD-14).
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
