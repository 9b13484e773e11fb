package workflow

import (
	"maps"
	"slices"
	"strings"
)

// Limits of nested workflows.
const (
	maxNestingDepth   = 8
	maxFlattenedSteps = 256 // steps, including the steps of nested workflows
)

// unresolvedWorkflow is a workflow in which some steps stand for nested workflows.
type unresolvedWorkflow struct {
	*checker
	flow        *Workflow
	nestedNames map[string]string // nested workflow by step
}

// unresolvedSet holds the unresolved workflows of a folder, by name.
type unresolvedSet map[string]*unresolvedWorkflow

// checkNested checks a step that stands for a nested workflow. Fields that configure an agent must be set in the
// nested workflow instead.
func (c *checker) checkNested(at func(...any) []any, name string, s stepDeclaration) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"agent", s.Agent != ""},
		{"routes", len(s.Routes) > 0},
		{"parallel", len(s.Parallel) > 0},
		{"rules", len(s.Rules) > 0},
		{"limit", s.Limit != 0},
		{"instances", s.Instances.Strategy != ""},
		{"choose", !s.Choose.isZero()},
		{"tools", !s.Tools.toPolicy().IsZero()},
		{"task", s.Task != ""},
		{"expects", s.Expects != ""},
		{"constraints", len(s.Constraints) > 0},
		{"plan", s.Plan != nil},
	} {
		if f.set {
			c.addProblem(at(f.name), "step %s: is the workflow %s, and cannot have %s; it may have next, then and end", name, s.Workflow, f.name)
		}
	}
}

// flatten returns a workflow in which nested workflows are replaced by their steps, named step/inner.
func (u unresolvedSet) flatten(name string) (*Workflow, error) {
	return u.inlineNested(name, nil)
}

func (u unresolvedSet) inlineNested(name string, around []string) (*Workflow, error) {
	own := u[name]
	around = append(slices.Clip(around), name)
	whole := *own.flow
	whole.Steps = map[string]Step{}
	entries := map[string]string{} // entries of nested workflows, by step
	inside := map[string]*Workflow{}
	c := &checker{document: own.document, spec: own.spec}
	for _, step := range slices.Sorted(maps.Keys(own.nestedNames)) {
		part, at := own.nestedNames[step], []any{"steps", step, "workflow"}
		switch {
		case u[part] == nil:
			c.addProblem(at, "step %s: unknown workflow %q; there are %s", step, part, strings.Join(slices.Sorted(maps.Keys(u)), ", "))
		case slices.Contains(around, part):
			c.addProblem(at, "step %s: the workflow %s is inside itself: %s", step, part, strings.Join(append(around, part), ", "))
		case len(around) >= maxNestingDepth:
			c.addProblem(at, "step %s: workflows are nested more than %d deep: %s", step, maxNestingDepth, strings.Join(append(around, part), ", "))
		default:
			flow, err := u.inlineNested(part, around)
			if err != nil {
				return nil, err
			}
			inside[step], entries[step] = flow, step+"/"+flow.Entry
		}
	}
	if len(c.problems) > 0 {
		return nil, c.joinedProblems()
	}
	for name, step := range own.flow.Steps {
		if flow := inside[name]; flow != nil {
			maps.Copy(whole.Steps, flow.inlineSteps(step.withRenamedSteps(entryResolver(entries))))
		} else {
			whole.Steps[name] = step.withRenamedSteps(entryResolver(entries))
		}
	}
	whole.Entry = entryResolver(entries)(whole.Entry)
	c.checkChoices(own, &whole)
	if len(whole.Steps) > maxFlattenedSteps {
		c.addProblem(nil, "workflow %s: has %d steps with those of the workflows inside it; at most %d are there", name, len(whole.Steps), maxFlattenedSteps)
	}
	return &whole, c.joinedProblems()
}

// checkChoices checks that the agent of a step can choose each of the step's routes.
func (c *checker) checkChoices(own *unresolvedWorkflow, whole *Workflow) {
	for _, name := range slices.Sorted(maps.Keys(own.flow.Steps)) {
		for i, route := range whole.Steps[name].Routes {
			if whole.Steps[route].Agent == "" {
				c.addProblem([]any{"steps", name, "routes", i}, "step %s: the route %s begins with no agent, and agents choose between agents", name, route)
			}
		}
	}
}

// inlineSteps returns the steps of a nested workflow that replace the step outer. Where the nested workflow would
// end, it continues with the successors of outer.
func (w *Workflow) inlineSteps(outer Step) map[string]Step {
	steps := map[string]Step{}
	for _, step := range w.Steps {
		step = step.withRenamedSteps(func(name string) string { return outer.Name + "/" + name })
		step.Name = outer.Name + "/" + step.Name
		if step.Fork == "" {
			step.Fork = outer.Fork
		}
		if step.End {
			step.End, step.Next, step.Then = outer.End, outer.Next, outer.Then
		}
		steps[step.Name] = step
	}
	return steps
}

// entryResolver returns the entry of the nested workflow that a step stands for.
func entryResolver(entries map[string]string) func(string) string {
	return func(name string) string {
		if entry, ok := entries[name]; ok {
			return entry
		}
		return name
	}
}

// withRenamedSteps returns a copy of the step in which the names of its successors and its fork are replaced.
func (s Step) withRenamedSteps(to func(string) string) Step {
	each := func(names []string) []string {
		var all []string
		for _, name := range names {
			all = append(all, to(name))
		}
		return all
	}
	for _, name := range []*string{&s.Next, &s.Default, &s.Join, &s.Otherwise, &s.OnError.Fallback, &s.Fork} {
		if *name != "" {
			*name = to(*name)
		}
	}
	s.Routes, s.Parallel = each(s.Routes), each(s.Parallel)
	s.Choose = s.Choose.RenameCandidates(to)
	s.Rules, s.Then = slices.Clone(s.Rules), slices.Clone(s.Then)
	for i := range s.Rules {
		s.Rules[i].Next = to(s.Rules[i].Next)
	}
	for i := range s.Then {
		s.Then[i].Next = to(s.Then[i].Next)
	}
	return s
}
