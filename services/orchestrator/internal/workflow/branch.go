package workflow

import "slices"

// branch is one branch of a fork.
type branch struct {
	fork        Step
	firstStep   string
	outer       *branch // the branch that contains the fork (nil when there is none)
	reachesJoin bool    // a step of the branch leads to the join
}

func (b *branch) String() string {
	if b == nil {
		return "outside of it"
	}
	return "the branch " + b.firstStep + " of " + b.fork.Name
}

// assignBranches finds the branch of each step and records it in the workflow. The steps of a branch may lead out
// of it only to the join, and only the fork may lead into it. So at most one step of a branch runs at any time.
func (c *checker) assignBranches(w *Workflow) {
	in := map[string]*branch{}
	var visit func(from, name string, b *branch)
	visit = func(from, name string, b *branch) {
		if b != nil && name == b.fork.Join {
			b.reachesJoin = true
			return
		}
		if before, known := in[name]; known {
			if before != b {
				inner, other := before, b
				if inner == nil {
					inner, other = b, before
				}
				c.addProblem([]any{"steps", from}, "step %s leads to %s, which belongs to %s and is reached from %s too", from, name, inner, other)
			}
			return
		}
		in[name] = b
		step := w.Steps[name]
		if b != nil && step.End {
			c.addProblem([]any{"steps", name, "end"}, "step %s: ends the turn inside %s; lead it to the join %s", name, b, b.fork.Join)
		}
		for i, head := range step.Parallel {
			way := &branch{fork: step, firstStep: head, outer: b}
			visit(name, head, way)
			if !way.reachesJoin && len(c.problems) == 0 {
				c.addProblem([]any{"steps", name, "parallel", i}, "step %s: the branch %s never reaches the join %s", name, head, step.Join)
			}
		}
		for _, next := range step.successors() {
			if !slices.Contains(step.Parallel, next) {
				visit(name, next, b)
			}
		}
	}
	visit("", w.Entry, nil)
	for name, b := range in {
		if step := w.Steps[name]; b != nil {
			step.Fork = b.fork.Name
			w.Steps[name] = step
		}
	}
}
