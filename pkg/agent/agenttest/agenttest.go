// Package agenttest lets an author test an agent without a mesh: its model is a script, its
// session is real.
//
//	func TestForecaster_UsesItsTool(t *testing.T) {
//		turn := agenttest.Run(t, forecaster(
//			scripted.Call(conversation.ToolCall{Name: "weather", Arguments: `{"city": "Oslo"}`}),
//			scripted.Say("It is sunny in Oslo."),
//		), "Do I need an umbrella?")
//		require.Equal(t, "It is sunny in Oslo.", turn.Text)
//		require.Equal(t, []string{"weather"}, turn.Tools)
//	}
//
// Package llm/scripted has the replies, and its model knows what it was asked.
//
// A turn that ends because tool calls wait for somebody goes on with Session.Approve, Deny or
// Answer:
//
//	s := agenttest.NewSession(t, clerk(scripted.Call(mail), scripted.Say("Sent.")))
//	require.Equal(t, "send_mail", s.Say("Write to Ann.").Pending[0].Tool)
//	require.Equal(t, "Sent.", s.Approve().Text)
package agenttest

import (
	"context"
	"strings"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// T is what this package needs of a test. *testing.T has it.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(end func())
	Fatalf(format string, args ...any)
}

// Turn is what one input of the user led to.
type Turn struct {
	Text     string              // the answer, or a question to the user; empty when the turn failed
	Tools    []string            // that were called, in order
	Warnings []event.Warning     // that were given, in order
	Pending  []execution.Pending // calls that wait; the turn has ended with them
	// State is what the session sees afterwards, by key. The values are as encoding/json reads
	// them into an any: numbers are float64.
	State  map[string]any
	Events []event.Event    // all of them, in order; the last one has the Result
	Result event.TurnResult // reason, usage, messages and changes of state
	Err    error            // what the turn failed with; nil: it did not
}

// Run runs an agent for one turn of a new session. The test fails when the turn does.
func Run(t T, a *agent.Agent, text string) Turn {
	t.Helper()
	return NewSession(t, a).Say(text)
}

// Kinds are those of the turn's events, in order: what a trace of it has. Pieces of text and
// what is internal are left out.
func (r Turn) Kinds() []string {
	var kinds []string
	for _, e := range r.Events {
		if !event.Passing(e.Payload) && !strings.HasPrefix(e.Kind(), event.Internal) {
			kinds = append(kinds, e.Kind())
		}
	}
	return kinds
}

// note adds an event to what is known of the turn.
func (r *Turn) note(e event.Event) {
	r.Events = append(r.Events, e)
	switch p := e.Payload.(type) {
	case event.ToolFinished:
		r.Tools = append(r.Tools, p.Tool)
	case event.Warning:
		r.Warnings = append(r.Warnings, p)
	case event.TurnResult:
		r.Result, r.Text, r.Pending = p, p.Result.Text, p.Result.Pending
	}
}
