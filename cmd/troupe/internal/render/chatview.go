package render

import (
	"fmt"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ChatView prints a turn in a chat: its messages, and one line for each tool call.
type ChatView struct {
	View
	speaker string            // author of the last message
	tools   map[string]string // arguments of running tools, keyed by step and call id
}

// NewChatView returns a view of one turn of a chat.
func NewChatView(term console.Terminal) *ChatView {
	return &ChatView{View: View{Terminal: term}, tools: map[string]string{}}
}

// PrintEvent prints an event, or nothing if users of a chat do not need it.
func (c *ChatView) PrintEvent(e *troupev1.Event) {
	call := func(id string) string { return fmt.Sprint(e.GetStep(), " ", id) }
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted, *troupev1.Event_Plan, *troupev1.Event_RoutingDecision, *troupev1.Event_StepFinished, *troupev1.Event_ToolCallPending:
	case *troupev1.Event_StepStarted:
		c.streamed = ""
	case *troupev1.Event_TextDelta:
		if c.speaker != e.GetAgent() {
			c.speaker = e.GetAgent()
			c.printLine("%s", c.Terminal.ApplyStyle(console.Dim, console.EscapeLine(c.speaker)+":"))
		}
		c.printText(p.TextDelta.GetText())
	case *troupev1.Event_ToolCallStarted:
		c.tools[call(p.ToolCallStarted.GetCallId())] = console.EscapeBeginning(p.ToolCallStarted.GetArguments(), 60)
	case *troupev1.Event_ToolCallFinished:
		f := p.ToolCallFinished
		c.printLine("  %s", c.Terminal.ApplyStyle(console.Dim, fmt.Sprintf("tool %s %s → %s after %s: %s", console.EscapeLine(f.GetTool()),
			c.tools[call(f.GetCallId())],
			ToolStatus(f.GetStatus()), console.FormatDuration(f.GetDuration()), console.EscapeBeginning(f.GetSummary(), 80))))
	case *troupev1.Event_TurnResult:
		c.printResult(p.TurnResult)
	default:
		c.View.PrintEvent(e)
	}
}
