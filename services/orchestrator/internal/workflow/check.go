package workflow

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// checker checks a workflow declaration and collects all its problems.
type checker struct {
	document manifest.Document
	spec     declaration
	problems []*manifest.Error
}

// joinedProblems returns all problems as one error, in the order of their lines (nil when there are none).
func (c *checker) joinedProblems() error {
	slices.SortStableFunc(c.problems, func(a, b *manifest.Error) int { return cmp.Compare(a.Line, b.Line) })
	all := make([]error, len(c.problems))
	for i, problem := range c.problems {
		all[i] = problem
	}
	return errors.Join(all...)
}

func (c *checker) addProblem(at []any, format string, args ...any) {
	c.problems = append(c.problems, c.document.PlaceOf(at...).Errorf(format, args...))
}

// checkTarget checks that a field contains the name of a step.
func (c *checker) checkTarget(at []any, field, name string) {
	switch _, ok := c.spec.Steps[name]; {
	case name == "":
		c.addProblem(at, "%s: names no step; want one of %s", field, c.stepNames())
	case !ok:
		c.addProblem(at, "%s: unknown step %q; want one of %s", field, name, c.stepNames())
	}
}

func (c *checker) stepNames() string {
	return strings.Join(slices.Sorted(maps.Keys(c.spec.Steps)), ", ")
}

// checkRange checks that a number is between 1 and a limit.
func (c *checker) checkRange(at []any, field string, value, most int) {
	if value < 1 || value > most {
		c.addProblem(at, "%s: %d is not between 1 and %d", field, value, most)
	}
}

// checkStep checks one step in isolation.
func (c *checker) checkStep(name string, s stepDeclaration, agents map[string]bool) {
	at := func(keys ...any) []any { return append([]any{"steps", name}, keys...) }
	switch {
	case strings.Contains(name, "/"):
		c.addProblem(at(), "step %s: a name has no slash; those of steps of workflows inside have", name)
	case s.Workflow != "":
		c.checkNested(at, name, s)
	case s.Agent == "" && len(s.Parallel) == 0 && len(s.Routes) == 0:
		c.addProblem(at(), "step %s: agent is missing", name)
	case s.Agent != "" && len(agents) > 0 && !agents[s.Agent]:
		c.addProblem(at("agent"), "step %s: unknown agent %q; declared are %s", name, s.Agent, strings.Join(slices.Sorted(maps.Keys(agents)), ", "))
	}
	ways := 0
	for _, set := range []bool{s.Next != "", len(s.Routes) > 0, s.End, len(s.Parallel) > 0} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		c.addProblem(at(), "step %s: want exactly one of next, routes, parallel and end, got %d", name, ways)
	}
	if s.Next != "" {
		c.checkTarget(at("next"), "step "+name+": next", s.Next)
	}
	for i, route := range s.Routes {
		c.checkTarget(at("routes", i), "step "+name+": routes", route)
	}
	if s.Default != "" && !slices.Contains(s.Routes, s.Default) {
		c.addProblem(at("default"), "step %s: default %q is not among its routes", name, s.Default)
	}
	for i, r := range s.Rules {
		c.checkTarget(at("rules", i, "next"), "step "+name+": rules.next", r.Next)
		if r.When.ReplyTo == "" && r.When.UnansweredMessages <= 0 {
			c.addProblem(at("rules", i), "step %s: rule %d has no condition; want replyTo or unansweredMessages above 0", name, i+1)
		}
	}
	c.checkFork(at, name, s)
	c.checkThen(at, name, s)
	c.checkStepLimit(at, name, s)
	c.checkOnError(at, name, s)
	c.checkInstances(name, s.Instances)
	c.checkChoose(at, name, s)
	c.checkTools(at, name, s)
	c.checkTask(at, name, s)
	c.checkPlan(at, name, s, agents)
}

// checkFork checks the fields of a fork.
func (c *checker) checkFork(at func(...any) []any, name string, s stepDeclaration) {
	switch {
	case len(s.Parallel) == 0 && s.Join == "":
		return
	case len(s.Parallel) == 0:
		c.addProblem(at("join"), "step %s: join is for a step with parallel", name)
		return
	case len(s.Parallel) == 1 || len(s.Parallel) > MaxBranches:
		c.addProblem(at("parallel"), "step %s: parallel names %d branches; want 2 to %d", name, len(s.Parallel), MaxBranches)
	}
	c.checkTarget(at("join"), "step "+name+": join", s.Join)
	for i, head := range s.Parallel {
		c.checkTarget(at("parallel", i), "step "+name+": parallel", head)
		if head == s.Join || head == name || slices.Contains(s.Parallel[:i], head) {
			c.addProblem(at("parallel", i), "step %s: %s cannot be a branch; each begins with a step of its own, which is not the join", name, head)
		}
	}
}

// checkThen checks the conditions on the result of a step.
func (c *checker) checkThen(at func(...any) []any, name string, s stepDeclaration) {
	if len(s.Then) > 0 && (s.Next == "" && len(s.Parallel) == 0 || s.Agent == "" && s.Workflow == "") {
		c.addProblem(at("then"), "step %s: then is for a step that has a result, and needs next or parallel", name)
	}
	for i, e := range s.Then {
		c.checkTarget(at("then", i, "next"), "step "+name+": then.next", e.Next)
		switch when := e.When; {
		case when.ConfidenceBelow == 0 && when.ObservationsBelow == 0 && !when.Failed:
			c.addProblem(at("then", i), "step %s: then %d has no condition; want confidenceBelow, observationsBelow or failed", name, i+1)
		case when.ConfidenceBelow < 0 || when.ConfidenceBelow > 1:
			c.addProblem(at("then", i, "when"), "step %s: confidenceBelow %v is not between 0 and 1", name, when.ConfidenceBelow)
		case when.ObservationsBelow < 0:
			c.addProblem(at("then", i, "when"), "step %s: observationsBelow %d is below 0", name, when.ObservationsBelow)
		case when.Failed && !s.OnError.Continue:
			c.addProblem(at("then", i, "when"),
				"step %s: then %d wants a step that failed, and such a one ends the turn; say onError: {continue: true} too", name, i+1)
		}
	}
}

// checkStepLimit checks how often a turn may enter a step, and which step replaces it then.
func (c *checker) checkStepLimit(at func(...any) []any, name string, s stepDeclaration) {
	switch {
	case s.Limit == 0 && s.Otherwise == "":
		return
	case s.Limit == 0:
		c.addProblem(at("otherwise"), "step %s: otherwise is for a step with a limit", name)
		return
	}
	c.checkRange(at("limit"), "step "+name+": limit", s.Limit, maxStepEntries)
	c.checkTarget(at("otherwise"), "step "+name+": otherwise", s.Otherwise)
}

// checkOnError checks what happens after a failure of a step.
func (c *checker) checkOnError(at func(...any) []any, name string, s stepDeclaration) {
	o := s.OnError
	if s.Agent == "" && o != (onErrorDeclaration{}) {
		c.addProblem(at("onError"), "step %s: onError is for a step with an agent, for only that can fail", name)
	}
	if o.Continue && o.Fallback != "" {
		c.addProblem(at("onError"), "step %s: onError wants continue or fallback, not both", name)
	}
	if o.Continue && s.End {
		c.addProblem(at("onError"), "step %s: onError.continue is not possible at the end of the workflow; name a step as fallback", name)
	}
	if len(s.Routes) > 0 && (o.Continue || o.Fallback != "") {
		c.addProblem(at("onError"), "step %s: a step with routes takes its default when it fails; onError may only retry it", name)
	}
	if o.Fallback != "" {
		c.checkTarget(at("onError", "fallback"), "step "+name+": onError.fallback", o.Fallback)
		if o.Fallback == name {
			c.addProblem(at("onError", "fallback"), "step %s: cannot be its own fallback; use retry", name)
		}
	}
	if o.Retry != nil {
		c.checkRetry(at, *o.Retry)
	}
}

// checkRetry checks how often, and with which backoff, a step is retried.
func (c *checker) checkRetry(at func(...any) []any, r retryDeclaration) {
	switch _, err := r.toPolicy(); {
	case err != nil:
		c.addProblem(at("onError", "retry", "policy"), "onError.retry.policy: %s", failure.PlainMessage(err))
	case r.Policy == "none" && (r.Attempts != 0 || r.Backoff != 0):
		c.addProblem(at("onError", "retry", "policy"), "onError.retry.policy: none tries nothing again; leave out attempts and backoff, or use another")
	}
	if r.Attempts != 0 {
		c.checkRange(at("onError", "retry", "attempts"), "onError.retry.attempts", r.Attempts, maxRetries)
	}
	if r.Backoff < 0 || r.Backoff > maxBackoff {
		c.addProblem(at("onError", "retry", "backoff"), "onError.retry.backoff: %s is not between 0s and %s", r.Backoff, maxBackoff)
	}
}

// checkGraph checks the steps together: every step is reachable, every cycle has a limit or a choice, and the
// branches of a fork meet.
func (c *checker) checkGraph(w *Workflow) {
	reachable := w.Reachable()
	for _, name := range slices.Sorted(maps.Keys(w.Steps)) {
		if !slices.Contains(reachable, name) {
			c.addProblem([]any{"steps", name}, "step %s cannot be reached from %s", name, w.Entry)
		}
	}
	c.findUnboundedCycle(w, reachable)
	if len(c.problems) == 0 {
		c.assignBranches(w)
	}
}

// findUnboundedCycle reports a cycle that has neither a limit nor a choice by an agent.
func (c *checker) findUnboundedCycle(w *Workflow, steps []string) {
	done := map[string]bool{}
	var walk func(name string, way []string) bool
	walk = func(name string, way []string) bool {
		if i := slices.Index(way, name); i >= 0 {
			c.addProblem([]any{"steps", way[len(way)-1]}, "step %s: its next steps form an endless cycle: %s; give one of them a limit",
				name, strings.Join(append(way[i:], name), ", "))
			return true
		}
		if done[name] {
			return false
		}
		done[name] = true
		for _, next := range w.Steps[name].unboundedSuccessors() {
			if walk(next, append(slices.Clip(way), name)) {
				return true
			}
		}
		return false
	}
	for _, name := range steps {
		if walk(name, nil) {
			return
		}
	}
}
