package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Attachment describes an attached file on one line.
func Attachment(b *troupev1.Blob) string {
	stored := ""
	if v := b.GetArtifact().GetVersion(); v > 0 {
		stored = fmt.Sprintf(", artifact version %d", v)
	}
	return fmt.Sprintf("%s, %s, %d bytes%s", console.EscapeLine(b.GetName()), console.EscapeLine(b.GetMediaType()), b.GetSize(), stored)
}

// ArtifactUpdate describes an artifact that a step writes, on one line.
func ArtifactUpdate(u *troupev1.ArtifactUpdate) string {
	what := "grows"
	switch {
	case u.GetComplete():
		what = fmt.Sprintf("is complete, version %d", u.GetVersion())
	case !u.GetAppend():
		what = "is begun"
	}
	return fmt.Sprintf("%s, %s, %d bytes, %s", console.EscapeLine(u.GetName()), console.EscapeLine(u.GetMediaType()), u.GetSize(), what)
}

// TraceState returns the state of a trace in lower case.
func TraceState(t *troupev1.Trace) string {
	if t.GetResult() == nil {
		return "running"
	}
	state := string(memorywire.OutcomeFromProto(t.GetResult().GetOutcome()))
	if t.GetQuarantined() {
		state += ", quarantined"
	}
	return state
}

// PlannedTasks returns the tasks of a planner, one line each.
func PlannedTasks(r *troupev1.StepResult) (lines []string) {
	for i, t := range r.GetTasks() {
		lines = append(lines, fmt.Sprintf("task %d for %s: %s", i+1, console.EscapeLine(t.GetAgent()), console.EscapeBeginning(t.GetText(), 80)))
	}
	return lines
}

// Quarantine describes a quarantine on one line (empty if there is none).
func Quarantine(q *troupev1.Quarantine) string {
	if q == nil {
		return ""
	}
	return fmt.Sprintf("quarantined for %s: %s", console.FormatAge(q.GetSince()), q.GetReason())
}

// Speaker returns the author of a message, or its role if it has no author.
func Speaker(m conversation.Message) string {
	if m.Author != "" {
		return m.Author
	}
	return string(m.Role)
}

// AgentMessage describes a message that an agent sent without its model, with the state and the artifacts that it
// changed.
func AgentMessage(m *troupev1.AgentMessage) string {
	var parts []string
	if m.GetText() != "" {
		parts = append(parts, "said: "+console.EscapeBeginning(m.GetText(), 80))
	}
	if keys := m.GetStateKeys(); len(keys) > 0 {
		parts = append(parts, "state: "+console.JoinNames(keys))
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetArtifacts())) {
		parts = append(parts, fmt.Sprintf("artifact: %s, version %d", console.EscapeLine(name), m.GetArtifacts()[name]))
	}
	return strings.Join(parts, "; ")
}

// Topic returns the topic of a thought in lower case letters.
func Topic(t *troupev1.Thinking) string {
	return strings.ToLower(strings.TrimPrefix(t.GetTopic().String(), "TOPIC_"))
}

// CustomEvent describes an event of a kind that its agent defines, with the beginning of its data.
func CustomEvent(e *troupev1.CustomEvent) string {
	return strings.TrimSpace(console.EscapeLine(e.GetName()) + " " + console.EscapeBeginning(e.GetData(), 200))
}

// Answer describes the answer to a pending call.
func Answer(a *troupev1.CallAnswer) string {
	text := fmt.Sprintf("%s: %s", console.EscapeLine(a.GetId()), strings.ToLower(strings.TrimPrefix(a.GetVerdict().String(), "CALL_VERDICT_")))
	if a.GetBy() != "" {
		text += " by " + console.EscapeLine(a.GetBy())
	}
	if a.GetLate() {
		text += ", too late: it counts as denied"
	}
	if a.GetText() != "" {
		text += ": " + console.EscapeBeginning(a.GetText(), 80)
	}
	return text
}

// Parent names the trace, the step and the call that started a child turn.
func Parent(p *troupev1.Parent) string {
	return fmt.Sprintf("trace %s  step %d  call %d", console.EscapeLine(p.GetTraceId()), p.GetStep(), p.GetCall())
}

// Subtask names the child turn that a remote agent runs.
func Subtask(s *troupev1.SubtaskStarted) string {
	return fmt.Sprintf("session %s  trace %s", console.EscapeLine(s.GetSessionId()), console.EscapeLine(s.GetTraceId()))
}

// Violation describes a rejected write to state that another tier owns.
func Violation(v *troupev1.OwnershipViolation) string {
	return console.EscapeLine(fmt.Sprintf("%s tried to modify state %q, which is owned by %s; nothing changed", v.GetActor(), v.GetKey(), v.GetOwner()))
}

// toolProgress describes the progress of a tool call.
func toolProgress(p *troupev1.ToolProgress) string {
	text := console.EscapeLine(p.GetTool()) + " …"
	if p.Fraction != nil {
		text += fmt.Sprintf(" %.0f %%", 100*p.GetFraction())
	}
	if p.GetMessage() != "" {
		text += " " + console.EscapeLine(p.GetMessage())
	}
	return text
}

func toolFinished(t *troupev1.ToolCallFinished) string {
	summary, _, _ := strings.Cut(t.GetSummary(), "\n")
	return fmt.Sprintf("%s %s after %s: %s", console.EscapeLine(t.GetTool()), ToolStatus(t.GetStatus()), console.FormatDuration(t.GetDuration()),
		console.EscapeLine(summary))
}

// ToolStatus returns the name of a status in lower case and without its prefix, such as "success".
func ToolStatus(s troupev1.ToolStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "TOOL_STATUS_"))
}
