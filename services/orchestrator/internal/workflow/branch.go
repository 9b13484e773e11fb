package workflow

import "slices"

// branch is one way between a fork and its join.
type branch struct {
	fork    Step
	head    string
	around  *branch // the branch in which the fork is; nil: in none
	arrives bool    // a step of it leads to the join
}

func (b *branch) String() string {
	if b == nil {
		return "outside of it"
	}
	return "the branch " + b.head + " of " + b.fork.Name
}

// branches finds out in which branch each step is, and notes it in the workflow. Nothing but
// the join leads out of a branch, and nothing but its fork into it: at any moment there is one
// step at most that runs in a branch.
func (c *checker) branches(w *Workflow) {
	in := map[string]*branch{}
	var visit func(from, name string, b *branch)
	visit = func(from, name string, b *branch) {
		if b != nil && name == b.fork.Join {
			b.arrives = true
			return
		}
		if before, known := in[name]; known {
			if before != b {
				inner, other := before, b
				if inner == nil {
					inner, other = b, before
				}
				c.wrong([]any{"steps", from}, "step %s leads to %s, which belongs to %s and is reached from %s too", from, name, inner, other)
			}
			return
		}
		in[name] = b
		step := w.Steps[name]
		if b != nil && step.End {
			c.wrong([]any{"steps", name, "end"}, "step %s: ends the turn inside %s; lead it to the join %s", name, b, b.fork.Join)
		}
		for i, head := range step.Parallel {
			way := &branch{fork: step, head: head, around: b}
			visit(name, head, way)
			if !way.arrives && len(c.problems) == 0 {
				c.wrong([]any{"steps", name, "parallel", i}, "step %s: the branch %s never reaches the join %s", name, head, step.Join)
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
