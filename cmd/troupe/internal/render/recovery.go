package render

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Origin describes the trace that a turn continues.
func Origin(f *troupev1.From) string {
	if f.GetFork() {
		return fmt.Sprintf("trace %s, forked at step %d", console.EscapeLine(f.GetTraceId()), f.GetStep())
	}
	return fmt.Sprintf("trace %s, which failed", console.EscapeLine(f.GetTraceId()))
}

// RecoveryHint describes the finished steps of a failed turn, and the command that continues after them. The
// command includes the given flags.
func RecoveryHint(p *troupev1.PartialResult, flags string) []string {
	if p == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("Done: %s of %d. Failed: %s.", formatSteps(p, p.GetCompletedSteps()), p.GetTotalSteps(), formatSteps(p, p.GetFailedSteps()))}
	if len(p.GetFailedSteps()) == 0 {
		lines[0] = fmt.Sprintf("Done: %s of %d.", formatSteps(p, p.GetCompletedSteps()), p.GetTotalSteps())
	}
	switch {
	case p.GetRecoverable():
		lines = append(lines, fmt.Sprintf("Continue without repeating that: troupe ask%s --resume %s", flags, console.QuoteForShell(p.GetTraceId())))
	case p.GetFailurePoint() > 0:
		lines = append(lines, fmt.Sprintf("That does not pass by itself. Once it is mended, go on in a new conversation: troupe ask%s --from %s --step %d",
			flags, console.QuoteForShell(p.GetTraceId()), p.GetFailurePoint()))
	}
	return lines
}

// formatSteps lists steps with their agents.
func formatSteps(p *troupev1.PartialResult, steps []int32) string {
	names := make([]string, len(steps))
	for i, n := range steps {
		names[i] = fmt.Sprint(n)
		for _, r := range p.GetStepResults() {
			if r.GetStep() == n {
				names[i] += " (" + console.EscapeLine(r.GetAgent()) + ")"
			}
		}
	}
	if len(names) == 1 {
		return "step " + names[0]
	}
	return "steps " + strings.Join(names, ", ")
}
