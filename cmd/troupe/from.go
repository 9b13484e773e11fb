package main

import (
	"errors"
	"fmt"
	"strings"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// earlier is part of a command that may go on from an earlier trace.
type earlier struct {
	Resume string `help:"Trace whose turn failed: go on with it, without doing again what was done." placeholder:"TRACE" type:"trace"`
	From   string `help:"Trace to go on from in a new conversation, as it was then: see --step." placeholder:"TRACE" type:"trace"`
	Step   int32  `help:"With --from: the first step that is done anew, at most 50." placeholder:"N" type:"step"`
}

// from is what the orchestrator is asked for; nil: nothing earlier.
func (e earlier) from() *troupev1.From {
	switch {
	case e.Resume != "":
		return &troupev1.From{TraceId: e.Resume}
	case e.From != "":
		return &troupev1.From{TraceId: e.From, Step: e.Step, Fork: true}
	default:
		return nil
	}
}

// check says what does not fit together; said is whether there is something to say.
func (e earlier) check(said bool) error {
	switch {
	case e.Resume != "" && (e.From != "" || said):
		return errors.New("--resume goes on with what was asked: leave the text, --file and --from out")
	case (e.From != "") != (e.Step > 0):
		return errors.New("--from TRACE and --step N (from 1) go together")
	default:
		return nil
	}
}

// again is what has to be said to ask for the same; empty: nothing but the text.
func (e earlier) again() string {
	switch {
	case e.Resume != "":
		return "ask for the same with: --resume " + word(e.Resume)
	case e.From != "":
		return fmt.Sprintf("ask for the same with: --from %s --step %d", word(e.From), e.Step)
	default:
		return ""
	}
}

// origin is the trace from which a turn goes on.
func origin(f *troupev1.From) string {
	if f.GetFork() {
		return fmt.Sprintf("trace %s, forked at step %d", oneLine(f.GetTraceId()), f.GetStep())
	}
	return fmt.Sprintf("trace %s, which failed", oneLine(f.GetTraceId()))
}

// goingOn is what there is of a turn that failed, and how one goes on from there; flags are those of
// the command that does.
func goingOn(p *troupev1.PartialResult, flags string) []string {
	if p == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("Done: %s of %d. Failed: %s.", stepList(p, p.GetCompletedSteps()), p.GetTotalSteps(), stepList(p, p.GetFailedSteps()))}
	if len(p.GetFailedSteps()) == 0 {
		lines[0] = fmt.Sprintf("Done: %s of %d.", stepList(p, p.GetCompletedSteps()), p.GetTotalSteps())
	}
	switch {
	case p.GetRecoverable():
		lines = append(lines, fmt.Sprintf("Go on without doing that again: troupe ask%s --resume %s", flags, word(p.GetTraceId())))
	case p.GetFailurePoint() > 0:
		lines = append(lines, fmt.Sprintf("That does not pass by itself. Once it is mended, go on in a new conversation: troupe ask%s --from %s --step %d",
			flags, word(p.GetTraceId()), p.GetFailurePoint()))
	}
	return lines
}

// stepList names steps with their agents.
func stepList(p *troupev1.PartialResult, steps []int32) string {
	names := make([]string, len(steps))
	for i, n := range steps {
		names[i] = fmt.Sprint(n)
		for _, r := range p.GetStepResults() {
			if r.GetStep() == n {
				names[i] += " (" + oneLine(r.GetAgent()) + ")"
			}
		}
	}
	if len(names) == 1 {
		return "step " + names[0]
	}
	return "steps " + strings.Join(names, ", ")
}
