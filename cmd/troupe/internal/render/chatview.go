package render

import (
	"fmt"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ChatView prints a turn for a chat: the messages, and one line for each tool call.
type ChatView struct {
	View
	speaker string            // who spoke last
	tools   map[string]string // arguments of the tools that run, by step and call id
}

// NewChatView returns a view of one turn of a chat.
func NewChatView(term console.Terminal) *ChatView {
	return &ChatView{View: View{Terminal: term}, tools: map[string]string{}}
}

// PrintEvent prints an event for a user of a chat.
func (r *ChatView) PrintEvent(e *troupev1.Event) {
	call := func(id string) string { return fmt.Sprint(e.GetStep(), " ", id) }
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted, *troupev1.Event_Plan, *troupev1.Event_RoutingDecision, *troupev1.Event_StepFinished, *troupev1.Event_ToolCallPending:
	case *troupev1.Event_StepStarted:
		r.streamed = ""
	case *troupev1.Event_TextDelta:
		if r.speaker != e.GetAgent() {
			r.speaker = e.GetAgent()
			r.printLine("%s", r.Terminal.Paint(console.Dim, console.EscapeLine(r.speaker)+":"))
		}
		r.printText(p.TextDelta.GetText())
	case *troupev1.Event_ToolCallStarted:
		r.tools[call(p.ToolCallStarted.GetCallId())] = console.Brief(p.ToolCallStarted.GetArguments(), 60)
	case *troupev1.Event_ToolCallFinished:
		f := p.ToolCallFinished
		r.printLine("  %s", r.Terminal.Paint(console.Dim, fmt.Sprintf("tool %s %s → %s after %s: %s", console.EscapeLine(f.GetTool()), r.tools[call(f.GetCallId())],
			ToolStatus(f.GetStatus()), console.Duration(f.GetDuration()), console.Brief(f.GetSummary(), 80))))
	case *troupev1.Event_TurnResult:
		r.printResult(p.TurnResult)
	default:
		r.View.PrintEvent(e)
	}
}
