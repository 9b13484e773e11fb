package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// view prints events the way a person wants to follow them: who works, why, with which
// tools, the text as it comes, and the answer.
type view struct {
	term     terminal
	inText   bool   // the cursor stands behind streamed text
	streamed string // text of the present step, as it was streamed
}

const (
	bold = "\x1b[1m"
	dim  = "\x1b[2m"
	red  = "\x1b[31m"
)

// paint is text in a style, where there are styles.
func (t terminal) paint(style, text string) string {
	if !t.color || style == "" || text == "" {
		return text
	}
	return style + text + "\x1b[0m"
}

func (v *view) line(format string, args ...any) {
	v.endText()
	fmt.Fprintf(v.term.out, format+"\n", args...)
}

func (v *view) event(e *troupev1.Event) {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted:
		v.line("%s", v.term.paint(dim, fmt.Sprintf("session %s  turn %d  trace %s", e.GetSessionId(), e.GetTurn(), e.GetTraceId())))
	case *troupev1.Event_Plan:
		if w := p.Plan.GetWorkflow(); w != "" {
			v.line("%-9s %s: %s", v.term.paint(dim, "plan"), w, strings.Join(p.Plan.GetSteps(), ", "))
		}
	case *troupev1.Event_RoutingDecision:
		v.line("%-9s %s  %s", v.term.paint(dim, "route"), v.term.paint(bold, p.RoutingDecision.GetTarget()), v.term.paint(dim, "("+p.RoutingDecision.GetReason()+")"))
	case *troupev1.Event_StepStarted:
		v.streamed = ""
		v.line("%-9s %s works on instance %s", v.term.paint(dim, "execute"), e.GetAgent(), e.GetInstanceId())
	case *troupev1.Event_ToolCallStarted:
		v.line("          tool %s %s", p.ToolCallStarted.GetTool(), v.term.paint(dim, p.ToolCallStarted.GetArguments()))
	case *troupev1.Event_ToolCallFinished:
		v.line("          tool %s", v.term.paint(dim, toolEnd(p.ToolCallFinished)))
	case *troupev1.Event_TextDelta:
		v.text(p.TextDelta.GetText())
	case *troupev1.Event_PartReset:
		v.streamed = ""
		v.line("%-9s attempt %d was lost: %s; what it said is void", v.term.paint(red, "reset"), e.GetAttempt(), p.PartReset.GetFailure().GetMessage())
	case *troupev1.Event_AgentMessage:
		v.line("          %s", spoken(p.AgentMessage))
	case *troupev1.Event_Thinking:
		v.line("%-9s %s", v.term.paint(dim, topic(p.Thinking)), v.term.paint(dim, p.Thinking.GetText()))
	case *troupev1.Event_Warning:
		v.line("%-9s %s", v.term.paint(red, "warning"), p.Warning.GetMessage())
	case *troupev1.Event_StepFinished:
		v.stepEnd(e, p.StepFinished)
	case *troupev1.Event_TurnResult:
		v.result(e, p.TurnResult)
	}
}

// text prints streamed text with a margin.
func (v *view) text(s string) {
	v.streamed += s
	if !v.inText {
		fmt.Fprint(v.term.out, "  │ ")
		v.inText = true
	}
	fmt.Fprint(v.term.out, strings.ReplaceAll(s, "\n", "\n  │ "))
}

func (v *view) endText() {
	if v.inText {
		fmt.Fprintln(v.term.out)
		v.inText = false
	}
}

func (v *view) stepEnd(e *troupev1.Event, s *troupev1.StepFinished) {
	if f := s.GetResult().GetFailure(); f != nil {
		v.line("%-9s %s failed after %s: %s", v.term.paint(red, "execute"), e.GetAgent(), short(s.GetDuration()), f.GetMessage())
		return
	}
	v.line("          %s", v.term.paint(dim, fmt.Sprintf("%s took %s", e.GetAgent(), short(s.GetDuration()))))
}

func (v *view) result(e *troupev1.Event, r *troupev1.TurnResult) {
	if f := r.GetFailure(); f != nil {
		v.line("\n%s %s", v.term.paint(red, "Failed:"), f.GetMessage())
		return
	}
	if text := strings.TrimSpace(r.GetText()); text != strings.TrimSpace(v.streamed) {
		v.line("\n%s", text)
	}
	how := []string{fmt.Sprintf("by %s", r.GetAgent()), fmt.Sprintf("%d model calls", r.GetUsage().GetModelCalls()), short(r.GetDuration())}
	if r.Confidence != nil {
		how = slices.Insert(how, 1, fmt.Sprintf("confidence %.2f", r.GetConfidence()))
	}
	v.line("\n%s", v.term.paint(dim, strings.Join(how, ", ")))
	if r.GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED {
		v.line("Answer with: troupe ask --session %s …", e.GetSessionId())
	}
}

func toolEnd(t *troupev1.ToolCallFinished) string {
	summary, _, _ := strings.Cut(t.GetSummary(), "\n")
	return fmt.Sprintf("%s %s after %s: %s", t.GetTool(), toolStatus(t.GetStatus()), short(t.GetDuration()), summary)
}

func toolStatus(s troupev1.ToolStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "TOOL_STATUS_"))
}

// short is a duration to about three digits.
func short(d *durationpb.Duration) string {
	switch v := d.AsDuration(); {
	case v < time.Millisecond:
		return v.Round(time.Microsecond).String()
	case v < time.Second:
		return v.Round(100 * time.Microsecond).String()
	default:
		return v.Round(10 * time.Millisecond).String()
	}
}
