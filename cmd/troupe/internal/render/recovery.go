package render

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Origin describes the trace from which a turn continues.
func Origin(f *troupev1.From) string {
	if f.GetFork() {
		return fmt.Sprintf("trace %s, forked at step %d", console.EscapeLine(f.GetTraceId()), f.GetStep())
	}
	return fmt.Sprintf("trace %s, which failed", console.EscapeLine(f.GetTraceId()))
}

// Recovery describes the finished steps of a failed turn, and the command that continues after them with the given
// flags.
func Recovery(p *troupev1.PartialResult, flags string) []string {
	if p == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("Done: %s of %d. Failed: %s.", stepList(p, p.GetCompletedSteps()), p.GetTotalSteps(), stepList(p, p.GetFailedSteps()))}
	if len(p.GetFailedSteps()) == 0 {
		lines[0] = fmt.Sprintf("Done: %s of %d.", stepList(p, p.GetCompletedSteps()), p.GetTotalSteps())
	}
	switch {
	case p.GetRecoverable():
		lines = append(lines, fmt.Sprintf("Continue without repeating that: troupe ask%s --resume %s", flags, console.ShellWord(p.GetTraceId())))
	case p.GetFailurePoint() > 0:
		lines = append(lines, fmt.Sprintf("That does not pass by itself. Once it is mended, go on in a new conversation: troupe ask%s --from %s --step %d",
			flags, console.ShellWord(p.GetTraceId()), p.GetFailurePoint()))
	}
	return lines
}

// stepList lists steps with their agents.
func stepList(p *troupev1.PartialResult, steps []int32) string {
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
