package main

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// view prints events the way a person wants to follow them: who works, why, with which
// tools, the text as it comes, and the answer.
type view struct {
	term     terminal
	server   server // for the commands that go on
	user     string // whose conversation it is
	inText   bool   // the cursor stands behind streamed text
	streamed string // text of the present step, as it was streamed
	step     int32  // that one; branches of a workflow take turns
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

// show prints events as they come, and says whether there were any and how the turn ended:
// nil, an exit, or why it is not known.
func show(term terminal, asJSON bool, events iter.Seq2[*troupev1.Event, error]) (begun bool, _ error) {
	return (&view{term: term}).show(asJSON, events)
}

func (v *view) show(asJSON bool, events iter.Seq2[*troupev1.Event, error]) (begun bool, _ error) {
	for e, err := range events {
		if err != nil {
			v.endText()
			return begun, err
		}
		begun = true
		if asJSON {
			line, err := protojson.Marshal(e)
			if err != nil {
				return begun, err
			}
			fmt.Fprintln(v.term.out, string(line))
		} else {
			v.event(e)
		}
		if r := e.GetTurnResult(); r != nil {
			return begun, outcome(r.GetOutcome())
		}
	}
	return begun, nil
}

func (v *view) line(format string, args ...any) {
	v.endText()
	fmt.Fprintf(v.term.out, format+"\n", args...)
}

func (v *view) event(e *troupev1.Event) {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted:
		v.line("%s", v.term.paint(dim, fmt.Sprintf("session %s  turn %d  trace %s", oneLine(e.GetSessionId()), e.GetTurn(), oneLine(e.GetTraceId()))))
		if above := p.TurnStarted.GetParent(); above != nil {
			v.line("%-9s %s", v.term.paint(dim, "parent"), parentage(above))
		}
		if f := p.TurnStarted.GetFrom(); f != nil {
			v.line("%-9s %s", v.term.paint(dim, "from"), origin(f))
		}
		for _, a := range p.TurnStarted.GetAnswers() {
			v.line("%-9s %s", v.term.paint(dim, "answer"), decision(a))
		}
		for _, b := range p.TurnStarted.GetAttachments() {
			v.line("%-9s %s", v.term.paint(dim, "file"), sent(b))
		}
	case *troupev1.Event_Plan:
		if w := p.Plan.GetWorkflow(); w != "" {
			v.line("%-9s %s: %s", v.term.paint(dim, "plan"), oneLine(w), joined(p.Plan.GetSteps()))
		}
	case *troupev1.Event_RoutingDecision:
		what := "route"
		if p.RoutingDecision.GetType() == troupev1.DecisionType_DECISION_TYPE_TOOL_SELECTION {
			what = "tools"
		}
		v.line("%-9s %s  %s", v.term.paint(dim, what), v.term.paint(bold, oneLine(p.RoutingDecision.GetTarget())), v.term.paint(dim, "("+oneLine(p.RoutingDecision.GetReason())+")"))
	case *troupev1.Event_StepStarted:
		v.streamed, v.step = "", e.GetStep()
		v.line("%-9s %s works on instance %s", v.term.paint(dim, "execute"), oneLine(e.GetAgent()), oneLine(e.GetInstanceId()))
	case *troupev1.Event_ToolCallStarted:
		v.line("          tool %s %s", oneLine(p.ToolCallStarted.GetTool()), v.term.paint(dim, oneLine(p.ToolCallStarted.GetArguments())))
	case *troupev1.Event_ToolProgress:
		v.line("          tool %s", v.term.paint(dim, progress(p.ToolProgress)))
	case *troupev1.Event_SubtaskStarted:
		v.line("          %s works in %s", oneLine(p.SubtaskStarted.GetTarget()), v.term.paint(dim, subtask(p.SubtaskStarted)))
	case *troupev1.Event_ToolCallFinished:
		v.line("          tool %s", v.term.paint(dim, toolEnd(p.ToolCallFinished)))
	case *troupev1.Event_ToolCallPending:
		v.line("          tool %s waits for %s", oneLine(p.ToolCallPending.GetCall().GetTool()), needed(p.ToolCallPending.GetCall()))
	case *troupev1.Event_TextDelta:
		if v.step != e.GetStep() {
			v.streamed, v.step = "", e.GetStep()
			v.line("          %s:", oneLine(e.GetAgent()))
		}
		v.text(p.TextDelta.GetText())
	case *troupev1.Event_PartReset:
		v.streamed = ""
		v.line("%-9s attempt %d was lost: %s; what it said is void", v.term.paint(red, "reset"), e.GetAttempt(), oneLine(p.PartReset.GetFailure().GetMessage()))
	case *troupev1.Event_AgentMessage:
		v.line("          %s", spoken(p.AgentMessage))
	case *troupev1.Event_Thinking:
		v.line("%-9s %s", v.term.paint(dim, topic(p.Thinking)), v.term.paint(dim, indented(p.Thinking.GetText(), 10)))
	case *troupev1.Event_Warning:
		v.line("%-9s %s", v.term.paint(red, "warning"), oneLine(p.Warning.GetMessage()))
	case *troupev1.Event_OwnershipViolation:
		v.line("%-9s %s", v.term.paint(red, "violation"), trespass(p.OwnershipViolation))
	case *troupev1.Event_StepFinished:
		v.stepEnd(e, p.StepFinished)
	case *troupev1.Event_TurnResult:
		v.result(p.TurnResult)
		for _, line := range goingOn(p.TurnResult.GetPartial(), v.flags("")) {
			v.line("%s", line)
		}
		v.next(e.GetSessionId(), p.TurnResult)
	}
}

// text prints streamed text with a margin.
func (v *view) text(s string) {
	v.streamed += s
	if !v.inText {
		fmt.Fprint(v.term.out, "  │ ")
		v.inText = true
	}
	fmt.Fprint(v.term.out, strings.ReplaceAll(visible(s), "\n", "\n  │ "))
}

func (v *view) endText() {
	if v.inText {
		fmt.Fprintln(v.term.out)
		v.inText = false
	}
}

func (v *view) stepEnd(e *troupev1.Event, s *troupev1.StepFinished) {
	if f := s.GetResult().GetFailure(); f != nil {
		v.line("%-9s %s failed after %s: %s", v.term.paint(red, "execute"), oneLine(e.GetAgent()), short(s.GetDuration()), oneLine(f.GetMessage()))
		return
	}
	if s.GetDuration() != nil { // else it is told by who did not see it begin
		v.line("          %s", v.term.paint(dim, fmt.Sprintf("%s took %s", oneLine(e.GetAgent()), short(s.GetDuration()))))
	}
	for _, line := range tasks(s.GetResult()) {
		v.line("%-9s %s", "plan", line)
	}
}

// result prints the answer, the question, or what failed.
func (v *view) result(r *troupev1.TurnResult) {
	if f := r.GetFailure(); f != nil {
		v.line("\n%s %s", v.term.paint(red, "Failed:"), indented(f.GetMessage(), 2))
		return
	}
	if text := strings.TrimSpace(r.GetText()); text != strings.TrimSpace(v.streamed) {
		v.line("\n%s", visible(text))
	}
	how := []string{"by " + oneLine(r.GetAgent()), counted(int64(r.GetUsage().GetModelCalls()), "model call"), short(r.GetDuration())}
	if r.Confidence != nil {
		how = slices.Insert(how, 1, fmt.Sprintf("confidence %.2f", r.GetConfidence()))
	}
	v.line("\n%s", v.term.paint(dim, strings.Join(how, ", ")))
}

// counted is a number of things: 1 turn, 2 turns.
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}

// next says what the user can do when the turn needs it.
func (v *view) next(session string, r *troupev1.TurnResult) {
	if !asks(r.GetOutcome()) {
		return
	}
	flags := v.flags(" --session " + word(session))
	if len(r.GetPending()) == 0 {
		v.line("Answer with: troupe ask%s …", flags)
		return
	}
	for _, p := range r.GetPending() {
		v.line("\n%s", v.term.decidable(p))
	}
	v.line("\nAnswer with:")
	for _, p := range r.GetPending() {
		for _, command := range v.server.ways(session, p) {
			v.line("  %s", command)
		}
	}
	v.line("A text in their place leaves them undone: troupe ask%s …", flags)
}

// flags are those with which the same person reaches the same mesh.
func (v *view) flags(more string) string {
	flags := v.server.flag() + more
	if v.user != "" {
		flags += " --user " + word(v.user)
	}
	return flags
}

// decision is what somebody said about a call that waited.
func decision(a *troupev1.CallAnswer) string {
	text := fmt.Sprintf("%s: %s", oneLine(a.GetId()), strings.ToLower(strings.TrimPrefix(a.GetVerdict().String(), "CALL_VERDICT_")))
	if a.GetBy() != "" {
		text += " by " + oneLine(a.GetBy())
	}
	if a.GetLate() {
		text += ", too late: it counts as denied"
	}
	if a.GetText() != "" {
		text += ": " + brief(a.GetText(), 80)
	}
	return text
}

// parentage is the place in another turn from which a turn was asked for.
func parentage(p *troupev1.Parent) string {
	return fmt.Sprintf("trace %s  step %d  call %d", oneLine(p.GetTraceId()), p.GetStep(), p.GetCall())
}

// subtask names the turn of a remote agent.
func subtask(s *troupev1.SubtaskStarted) string {
	return fmt.Sprintf("session %s  trace %s", oneLine(s.GetSessionId()), oneLine(s.GetTraceId()))
}

// trespass is a write that was refused, because the state has another owner.
func trespass(v *troupev1.OwnershipViolation) string {
	return oneLine(fmt.Sprintf("%s tried to modify state %q, which is owned by %s; nothing changed", v.GetActor(), v.GetKey(), v.GetOwner()))
}

// progress is how far a tool is.
func progress(p *troupev1.ToolProgress) string {
	text := oneLine(p.GetTool()) + " …"
	if p.Fraction != nil {
		text += fmt.Sprintf(" %.0f %%", 100*p.GetFraction())
	}
	if p.GetMessage() != "" {
		text += " " + oneLine(p.GetMessage())
	}
	return text
}

func toolEnd(t *troupev1.ToolCallFinished) string {
	summary, _, _ := strings.Cut(t.GetSummary(), "\n")
	return fmt.Sprintf("%s %s after %s: %s", oneLine(t.GetTool()), toolStatus(t.GetStatus()), short(t.GetDuration()), oneLine(summary))
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
