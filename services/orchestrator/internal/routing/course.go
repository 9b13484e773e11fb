package routing

import (
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Task is one step that is to run.
type Task struct {
	Number   int // of the step in the turn, from 1
	Decision Decision
	// Prior are the numbers of the steps whose results it gets, in order: those before it on
	// its way. Behind a join that is those of all branches.
	Prior []int
}

// Silent reports whether what the step says is no part of the conversation.
func (t Task) Silent() bool { return len(t.Decision.Step.Routes) > 0 || t.Branch() }

// Branch reports whether other steps may run beside it.
func (t Task) Branch() bool { return t.Decision.Step.Fork != "" }

// Course is the way of one turn through its workflow. It goes in rounds: all steps of a round
// run at once, and what comes next is decided when all have ended. It is a function of the
// workflow, the history with which the turn began, the results so far, and the choices that were
// recorded: whoever takes the turn over comes to the same steps, under the same numbers, for the
// same reasons. One goroutine uses it.
type Course struct {
	flow    *workflow.Workflow
	history []conversation.Message
	choose  Chooser
	choices int // that were made
	round   []Task
	number  int              // of the last step
	times   map[string]int   // that the turn came to a step
	meeting map[string]*meet // branches of a fork, or tasks of a planner, that run
}

// meet is a fork whose branches have not all reached its join, or a planner whose tasks are not
// all done.
type meet struct {
	left  int
	seen  []int           // of the branches that have
	join  Decision        // who works when all have
	fork  string          // in a branch of which the join is
	later []workflow.Step // tasks that are done one after the other, and have not begun
}

// Chooser chooses among the routes of a step that has no agent. Number is which one of the choices
// of the turn it is, from 1: under this number it was recorded, if an owner of the turn came here before.
// Next is the number of the step that is chosen, if it is one that runs.
type Chooser func(number, next int, step workflow.Step) (Decision, error)

// NewCourse returns the way of a turn that begins with a history, its own message last. The
// chooser may be nil when the workflow has no step that chooses.
func NewCourse(flow *workflow.Workflow, history []conversation.Message, choose Chooser) (*Course, error) {
	c := &Course{flow: flow, history: history, choose: choose, times: map[string]int{}, meeting: map[string]*meet{}}
	if err := c.come(first(flow), "", nil); err != nil {
		return nil, err
	}
	return c, c.bounded()
}

// Round are the steps that are to run now, in the order of their numbers. There are none when
// the turn is over.
func (c *Course) Round() []Task { return c.round }

// Go goes on with the results of the round, one for each step in its order. It fails with why
// the turn ends without an answer: the failure of the first step that it does not survive,
// agent_contract when a step asks for what the workflow does not allow, and policy_budget when
// there are no steps left.
func (c *Course) Go(results []execution.Result) error {
	ended := c.round
	c.round = nil
	for i, r := range results {
		if err := c.Ends(ended[i], r); err != nil {
			return err
		}
	}
	for i, r := range results {
		task := ended[i]
		from, seen := task.Decision.Step, task.Prior
		if r.Failure == nil {
			seen = append(slices.Clip(seen), task.Number)
		}
		d, err := next(c.flow, from, r)
		switch {
		case err != nil:
			return err
		case !d.Done() && r.Failure == nil && len(r.Tasks) > 0:
			c.plan(from, r.Tasks, d, seen)
		case d.Done() && len(from.Parallel) > 0 && !r.InputRequired && !r.Stopped:
			err = c.fork(from, seen)
		case !d.Done():
			err = c.come(d, from.Fork, seen)
		}
		if err != nil {
			return err
		}
	}
	return c.bounded()
}

// Ends says why the turn ends with a result of a step, whatever the others of its round lead
// to; nil when it goes on, or ends with an answer.
func (c *Course) Ends(task Task, result execution.Result) error {
	_, err := next(c.flow, task.Decision.Step, result)
	return err
}

// come comes to a step in a branch of a fork, or in none.
func (c *Course) come(d Decision, fork string, seen []int) error {
	for asked := false; ; {
		if fork != "" && d.Step.Name == c.meeting[fork].join.Step.Name {
			return c.meet(fork, seen)
		}
		if other, ok := passed(c.flow, d.Step, c.history); ok && !asked {
			d, asked = other, true
			continue
		}
		other, ok := spent(c.flow, d.Step, c.times[d.Step.Name])
		if !ok {
			break
		}
		d = other
	}
	c.times[d.Step.Name]++
	switch {
	case d.Step.Chooses():
		c.choices++
		chosen, err := c.choose(c.choices, c.number+1, d.Step)
		if err != nil {
			return err
		}
		return c.come(chosen, fork, seen)
	case d.Step.Agent == "":
		return c.fork(d.Step, seen)
	}
	c.number++
	c.round = append(c.round, Task{Number: c.number, Decision: d, Prior: seen})
	return nil
}

// fork begins the branches of a step.
func (c *Course) fork(step workflow.Step, seen []int) error {
	c.meeting[step.Name] = &meet{
		left: len(step.Parallel), fork: step.Fork,
		join: fixed(c.flow.Steps[step.Join], fmt.Sprintf("all %d branches of %s have come to %s", len(step.Parallel), step.Name, step.Join)),
	}
	for i, head := range step.Parallel {
		begun := fixed(c.flow.Steps[head], fmt.Sprintf("%s is branch %d of %d of %s", head, i+1, len(step.Parallel), step.Name))
		if err := c.come(begun, step.Name, seen); err != nil {
			return err
		}
	}
	return nil
}

// meet ends a branch of a fork. Behind the last one comes the join.
func (c *Course) meet(fork string, seen []int) error {
	m := c.meeting[fork]
	m.left--
	m.seen = append(m.seen, seen...)
	if m.left > 0 {
		c.later(m, seen)
		return nil
	}
	delete(c.meeting, fork)
	slices.Sort(m.seen)
	return c.come(m.join, m.fork, slices.Compact(m.seen))
}

// bounded refuses more steps than the workflow allows.
func (c *Course) bounded() error {
	if c.number <= c.flow.MaxSteps {
		return nil
	}
	return failure.Newf(failure.PolicyBudget, Op,
		"the workflow %s took %d steps without an end; limits.steps allows no more", c.flow.Name, c.flow.MaxSteps)
}

// Recall finds what is known of the steps of a round; nil for those that are still to run. Up
// to reached it is known that the turn went on: a step below, of which nothing is known, has
// failed.
func Recall(round []Task, known []execution.Result, reached int) []*execution.Result {
	found := make([]*execution.Result, len(round))
	last := round[len(round)-1].Number
	for _, r := range known {
		reached = max(reached, r.Step)
		for i, task := range round {
			if r.Step == task.Number && r.Agent == task.Decision.Step.Agent {
				found[i] = &r
			}
		}
	}
	for i, task := range round {
		if found[i] == nil && reached > last {
			found[i] = &execution.Result{
				Step: task.Number, Agent: task.Decision.Step.Agent,
				Failure: failure.New(failure.Unknown, "turn", "the step failed before the turn was taken over"),
			}
		}
	}
	return found
}
