// Package agenttest lets an author test an agent without a mesh. Its model is a script, and its session is real.
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
// When a turn ends because tool calls wait, the next turn continues it with Session.Approve, Deny or Answer:
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

// T is the part of *testing.T that this package needs.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(end func())
	Fatalf(format string, args ...any)
}

// Turn holds the outcome of one turn.
type Turn struct {
	Text     string              // the answer, or a question to the user (empty when the turn failed)
	Tools    []string            // names of the tools that were called, in order
	Warnings []event.Warning     // warnings of the turn, in order
	Pending  []execution.Pending // pending calls (nil when no call waits)
	// State holds the state of the session after the turn, by key. Values are decoded by encoding/json into an
	// any, so numbers are float64.
	State  map[string]any
	Events []event.Event    // all events, in order; the last one has the Result
	Result event.TurnResult // reason, usage, messages and changes of state
	Err    error            // why the turn failed (nil when it did not)
}

// Run runs an agent for one turn of a new session. If the turn fails, the test fails.
func Run(t T, a *agent.Agent, text string) Turn {
	t.Helper()
	return NewSession(t, a).Say(text)
}

// Kinds returns the kinds of the turn's events in order, as its trace records them. It omits text deltas and
// internal events.
func (t Turn) Kinds() []string {
	var kinds []string
	for _, e := range t.Events {
		if !event.IsTransient(e.Payload) && !strings.HasPrefix(e.Kind(), event.InternalPrefix) {
			kinds = append(kinds, e.Kind())
		}
	}
	return kinds
}

// addEvent adds an event to the outcome of the turn.
func (t *Turn) addEvent(e event.Event) {
	t.Events = append(t.Events, e)
	switch p := e.Payload.(type) {
	case event.ToolFinished:
		t.Tools = append(t.Tools, p.Tool)
	case event.Warning:
		t.Warnings = append(t.Warnings, p)
	case event.TurnResult:
		t.Result, t.Text, t.Pending = p, p.Result.Text, p.Result.Pending
	}
}
