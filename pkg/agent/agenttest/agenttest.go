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

// T is what this package needs of a test. *testing.T implements it.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(end func())
	Fatalf(format string, args ...any)
}

// Turn is the outcome of one input of the user.
type Turn struct {
	Text     string              // the answer, or a question to the user (empty when the turn failed)
	Tools    []string            // that were called, in order
	Warnings []event.Warning     // that were given, in order
	Pending  []execution.Pending // calls that wait, if the turn ended with some
	// State holds the state of the session after the turn, by key. Values are as encoding/json decodes them into
	// an any: numbers are float64.
	State  map[string]any
	Events []event.Event    // all events, in order; the last one has the Result
	Result event.TurnResult // reason, usage, messages and changes of state
	Err    error            // why the turn failed (nil when it did not)
}

// Run runs an agent for one turn of a new session. The test fails if the turn does.
func Run(t T, a *agent.Agent, text string) Turn {
	t.Helper()
	return NewSession(t, a).Say(text)
}

// Kinds returns the kinds of the turn's events in order, as its trace has them. It omits text deltas and internal
// events.
func (t Turn) Kinds() []string {
	var kinds []string
	for _, e := range t.Events {
		if !event.IsTransient(e.Payload) && !strings.HasPrefix(e.Kind(), event.InternalPrefix) {
			kinds = append(kinds, e.Kind())
		}
	}
	return kinds
}

// add adds an event to the turn.
func (t *Turn) add(e event.Event) {
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
