// Package render formats what the mesh reports: events of a turn, pending calls, and other values that several
// commands print in the same way.
package render

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// View prints the events of a turn for a person. It shows the agents and why they were chosen, the tool calls,
// streamed text, and the answer.
type View struct {
	Terminal console.Terminal
	Server   remote.Server // for printed commands that answer or continue the turn
	User     string        // user of the session
	inText   bool          // the cursor is after streamed text
	streamed string        // text of the current step, as it was streamed
	step     int32         // number of the current step; events of parallel branches alternate
}

// Show prints events as they arrive and reports whether any arrived. Its error is nil, an exit code for the
// outcome of the turn, or the error of the stream.
func (v *View) Show(asJSON bool, events iter.Seq2[*troupev1.Event, error]) (begun bool, _ error) {
	for e, err := range events {
		if err != nil {
			v.EndText()
			return begun, err
		}
		begun = true
		if asJSON {
			line, err := protojson.Marshal(e)
			if err != nil {
				return begun, err
			}
			fmt.Fprintln(v.Terminal.Out, string(line))
		} else {
			v.PrintEvent(e)
		}
		if r := e.GetTurnResult(); r != nil {
			return begun, outcomeError(r.GetOutcome())
		}
	}
	return begun, nil
}

func (v *View) printLine(format string, args ...any) {
	v.EndText()
	fmt.Fprintf(v.Terminal.Out, format+"\n", args...)
}

// PrintEvent prints an event of a turn.
func (v *View) PrintEvent(e *troupev1.Event) {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted:
		v.printLine("%s", v.Terminal.ApplyStyle(console.Dim, fmt.Sprintf("session %s  turn %d  trace %s", console.EscapeLine(e.GetSessionId()),
			e.GetTurn(), console.EscapeLine(e.GetTraceId()))))
		if parent := p.TurnStarted.GetParent(); parent != nil {
			v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Dim, "parent"), Parent(parent))
		}
		v.printOrigin(p.TurnStarted.GetFrom())
		for _, a := range p.TurnStarted.GetAnswers() {
			v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Dim, "answer"), Answer(a))
		}
		for _, b := range p.TurnStarted.GetAttachments() {
			v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Dim, "file"), Attachment(b))
		}
	case *troupev1.Event_Plan:
		if w := p.Plan.GetWorkflow(); w != "" {
			v.printLine("%-9s %s: %s", v.Terminal.ApplyStyle(console.Dim, "plan"), console.EscapeLine(w), console.JoinNames(p.Plan.GetSteps()))
		}
	case *troupev1.Event_RoutingDecision:
		what := "route"
		if p.RoutingDecision.GetType() == troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION {
			what = "tools"
		}
		v.printLine("%-9s %s  %s", v.Terminal.ApplyStyle(console.Dim, what),
			v.Terminal.ApplyStyle(console.Bold, console.EscapeLine(p.RoutingDecision.GetTarget())), v.Terminal.ApplyStyle(console.Dim,
				"("+console.EscapeLine(p.RoutingDecision.GetReason())+")"))
	case *troupev1.Event_StepStarted:
		v.streamed, v.step = "", e.GetStep()
		v.printLine("%-9s %s works on instance %s", v.Terminal.ApplyStyle(console.Dim, "execute"), console.EscapeLine(e.GetAgent()),
			console.EscapeLine(e.GetInstanceId()))
	case *troupev1.Event_ToolCallStarted:
		v.printLine("          tool %s %s", console.EscapeLine(p.ToolCallStarted.GetTool()),
			v.Terminal.ApplyStyle(console.Dim, console.EscapeLine(p.ToolCallStarted.GetArguments())))
	case *troupev1.Event_ToolProgress:
		v.printLine("          tool %s", v.Terminal.ApplyStyle(console.Dim, toolProgress(p.ToolProgress)))
	case *troupev1.Event_SubtaskStarted:
		v.printLine("          %s works in %s", console.EscapeLine(p.SubtaskStarted.GetTarget()), v.Terminal.ApplyStyle(console.Dim, Subtask(p.SubtaskStarted)))
	case *troupev1.Event_ToolCallFinished:
		v.printLine("          tool %s", v.Terminal.ApplyStyle(console.Dim, toolFinished(p.ToolCallFinished)))
	case *troupev1.Event_ToolCallPending:
		v.printLine("          tool %s waits for %s", console.EscapeLine(p.ToolCallPending.GetCall().GetTool()), NeededInputText(p.ToolCallPending.GetCall()))
	case *troupev1.Event_TextDelta:
		if v.step != e.GetStep() {
			v.streamed, v.step = "", e.GetStep()
			v.printLine("          %s:", console.EscapeLine(e.GetAgent()))
		}
		v.printText(p.TextDelta.GetText())
	case *troupev1.Event_TextRetracted:
		v.streamed = ""
		v.printLine("%-9s attempt %d was lost: %s; what it said is void", v.Terminal.ApplyStyle(console.Red, "reset"), e.GetAttempt(),
			console.EscapeLine(p.TextRetracted.GetFailure().GetMessage()))
	case *troupev1.Event_AgentMessage:
		v.printLine("          %s", AgentMessage(p.AgentMessage))
	case *troupev1.Event_ArtifactUpdate:
		v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Dim, "artifact"), ArtifactUpdate(p.ArtifactUpdate))
	case *troupev1.Event_Thinking:
		v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Dim, Topic(p.Thinking)), v.Terminal.ApplyStyle(console.Dim,
			console.EscapeAndIndent(p.Thinking.GetText(), 10)))
	case *troupev1.Event_Custom:
		v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Dim, "event"), CustomEvent(p.Custom))
	case *troupev1.Event_Warning:
		v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Red, "warning"), console.EscapeLine(p.Warning.GetMessage()))
	case *troupev1.Event_OwnershipViolation:
		v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Red, "violation"), Violation(p.OwnershipViolation))
	case *troupev1.Event_StepFinished:
		v.printStepFinished(e, p.StepFinished)
	case *troupev1.Event_TurnResult:
		v.printResult(p.TurnResult)
		for _, line := range RecoveryHint(p.TurnResult.GetPartial(), v.commandFlags("")) {
			v.printLine("%s", line)
		}
		v.printNextSteps(e.GetSessionId(), p.TurnResult)
	}
}

// printOrigin prints the earlier trace that a turn continues, if there is one.
func (v *View) printOrigin(from *troupev1.From) {
	if from != nil {
		v.printLine("%-9s %s", v.Terminal.ApplyStyle(console.Dim, "from"), Origin(from))
	}
}

// printText prints streamed text, indented.
func (v *View) printText(s string) {
	v.streamed += s
	if !v.inText {
		fmt.Fprint(v.Terminal.Out, "  │ ")
		v.inText = true
	}
	fmt.Fprint(v.Terminal.Out, strings.ReplaceAll(console.Escape(s), "\n", "\n  │ "))
}

// EndText ends the current line if it contains streamed text.
func (v *View) EndText() {
	if v.inText {
		fmt.Fprintln(v.Terminal.Out)
		v.inText = false
	}
}

func (v *View) printStepFinished(e *troupev1.Event, s *troupev1.StepFinished) {
	if f := s.GetResult().GetFailure(); f != nil {
		v.printLine("%-9s %s failed after %s: %s", v.Terminal.ApplyStyle(console.Red, "execute"), console.EscapeLine(e.GetAgent()),
			console.FormatDuration(s.GetDuration()), console.EscapeLine(f.GetMessage()))
		return
	}
	if s.GetDuration() != nil { // nil if the orchestrator took over and did not see the start
		v.printLine("          %s", v.Terminal.ApplyStyle(console.Dim, fmt.Sprintf("%s took %s", console.EscapeLine(e.GetAgent()),
			console.FormatDuration(s.GetDuration()))))
	}
	for _, line := range PlannedTasks(s.GetResult()) {
		v.printLine("%-9s %s", "plan", line)
	}
}

// printResult prints the answer, the question, or the failure of the turn.
func (v *View) printResult(r *troupev1.TurnResult) {
	if f := r.GetFailure(); f != nil {
		v.printLine("\n%s %s", v.Terminal.ApplyStyle(console.Red, "Failed:"), console.EscapeAndIndent(f.GetMessage(), 2))
		return
	}
	if text := strings.TrimSpace(r.GetText()); text != strings.TrimSpace(v.streamed) {
		v.printLine("\n%s", console.Escape(text))
	}
	how := []string{
		"by " + console.EscapeLine(r.GetAgent()), console.FormatCount(int64(r.GetUsage().GetModelCalls()), "model call"),
		console.FormatDuration(r.GetDuration()),
	}
	if r.Confidence != nil {
		how = slices.Insert(how, 1, fmt.Sprintf("confidence %.2f", r.GetConfidence()))
	}
	v.printLine("\n%s", v.Terminal.ApplyStyle(console.Dim, strings.Join(how, ", ")))
	if r.GetIncomplete() != troupev1.IncompleteReason_INCOMPLETE_REASON_UNSPECIFIED {
		v.printLine("%s: %s", v.Terminal.ApplyStyle(console.Red, "The answer may be incomplete"), IncompleteReason(r.GetIncomplete()))
	}
}

// IncompleteReason returns why an answer may be incomplete, in words.
func IncompleteReason(r troupev1.IncompleteReason) string {
	switch r {
	case troupev1.IncompleteReason_INCOMPLETE_REASON_MAX_ITERATIONS:
		return "the agent reached its limit of iterations"
	case troupev1.IncompleteReason_INCOMPLETE_REASON_LENGTH:
		return "the model reached its limit of output tokens"
	case troupev1.IncompleteReason_INCOMPLETE_REASON_CONTENT_FILTER:
		return "the model declined, or a filter stopped it"
	default:
		return "the model's provider stopped it for an unknown reason"
	}
}

// printNextSteps prints the commands that answer the question or the pending calls of the turn.
func (v *View) printNextSteps(session string, r *troupev1.TurnResult) {
	if !NeedsUser(r.GetOutcome()) {
		return
	}
	flags := v.commandFlags(" --session " + console.QuoteForShell(session))
	if len(r.GetPending()) == 0 {
		v.printLine("Answer with: troupe ask%s …", flags)
		return
	}
	for _, p := range r.GetPending() {
		v.printLine("\n%s", PendingCall(v.Terminal, p))
	}
	v.printLine("\nAnswer with:")
	for _, p := range r.GetPending() {
		for _, command := range AnswerCommands(v.Server, session, p) {
			v.printLine("  %s", command)
		}
	}
	v.printLine("A text in their place leaves them undone: troupe ask%s …", flags)
}

// commandFlags returns the given flags, and those with which a further command reaches the same mesh as the same
// user.
func (v *View) commandFlags(more string) string {
	flags := v.Server.Flags() + more
	if v.User != "" {
		flags += " --user " + console.QuoteForShell(v.User)
	}
	return flags
}
