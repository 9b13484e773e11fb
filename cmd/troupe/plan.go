package main

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// status is how a step ended: with the kind of its error, and whether the same may go well later.
func status(r *troupev1.StepResult) string {
	resp := execution.ResponseOf(wire.ResultFromProto(r))
	text := string(resp.Status)
	if resp.Status != execution.Failed {
		return text
	}
	text += ": " + string(resp.Error.Type)
	if resp.Error.Recoverable {
		text += ", recoverable"
	}
	return text
}

// tasks are what a planner wants done, one line each.
func tasks(r *troupev1.StepResult) (lines []string) {
	for i, t := range r.GetTasks() {
		lines = append(lines, fmt.Sprintf("task %d for %s: %s", i+1, oneLine(t.GetAgent()), brief(t.GetText(), 80)))
	}
	return lines
}

// planned are the steps of a plan with how far they are.
func planned(plan []*troupev1.PlanStep) (lines []*node) {
	for _, s := range plan {
		n := &node{text: fmt.Sprintf("%s, agent %s: %s", s.GetStep(), s.GetAgent(), strings.ToLower(strings.TrimPrefix(s.GetState().String(), "PLAN_STATE_")))}
		if s.GetTask() != "" {
			n.text += "; " + brief(s.GetTask(), 80)
		}
		if s.GetExecuting() != nil && s.GetEnded() != nil {
			n.took = s.GetEnded().AsTime().Sub(s.GetExecuting().AsTime())
		}
		lines = append(lines, n)
	}
	return lines
}

// stepAsked is what a step of a workflow is asked to do, and what it may plan.
func stepAsked(s *troupev1.WorkflowStep) (lines []string) {
	for _, f := range []struct{ name, text string }{
		{"task", s.GetTask()}, {"expects", s.GetExpects()}, {"constraints", strings.Join(s.GetConstraints(), "; ")},
	} {
		if f.text != "" {
			lines = append(lines, f.name+": "+brief(f.text, width))
		}
	}
	p := s.GetPlan()
	if p == nil {
		return lines
	}
	how := "one after the other"
	if p.GetParallel() {
		how = "at once"
	}
	if p.GetContinues() {
		how += ", goes on when one fails"
	}
	return append(lines, fmt.Sprintf("plans at most %s for %s, %s", counted(int64(p.GetMax()), "task"), strings.Join(p.GetAgents(), ", "), how))
}
