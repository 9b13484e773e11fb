// Package cursor follows a turn through its workflow: which steps run next, and when the turn ends.
// It has no clock and does no I/O, so an orchestrator that takes the turn over gets the same steps.
package cursor

import (
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Task is one step that is to run.
type Task struct {
	Number   int // of the step in the turn, from 1
	Decision routing.Decision
	// Prior are the numbers of the steps whose results it gets, in order: those before it on
	// its way. Behind a join that is those of all branches.
	Prior []int
}

// IsHidden reports whether what the step says is no part of the conversation.
func (t Task) IsHidden() bool { return len(t.Decision.Step.Routes) > 0 || t.IsBranch() }

// IsBranch reports whether other steps may run beside it.
func (t Task) IsBranch() bool { return t.Decision.Step.Fork != "" }

// Cursor is the way of one turn through its workflow. It goes in rounds: all steps of a round
// run at once, and what comes next is decided when all have ended. It is a function of the
// workflow, the history with which the turn began, the results so far, and the choices that were
// recorded: whoever takes the turn over comes to the same steps, under the same numbers, for the
// same reasons. One goroutine uses it.
type Cursor struct {
	flow     *workflow.Workflow
	history  []conversation.Message
	selector Selector
	choices  int // that were made
	round    []Task
	number   int              // of the last step
	visits   map[string]int   // that the turn came to a step
	joins    map[string]*join // branches of a fork, or tasks of a planner, that run
}

// join is a fork whose branches have not all reached its join, or a planner whose tasks are not
// all done.
type join struct {
	running int
	prior   []int            // of the branches that have
	next    routing.Decision // who works when all have
	fork    string           // in a branch of which the join is
	queued  []workflow.Step  // tasks that are done one after the other, and have not begun
}

// Selector chooses among the routes of a step that has no agent. Number is which one of the choices
// of the turn it is, from 1: under this number it was recorded, if an owner of the turn came here before.
// Next is the number of the step that is chosen, if it is one that runs.
type Selector func(number, next int, step workflow.Step) (routing.Decision, error)

// New returns the way of a turn that begins with a history, its own message last. The
// chooser may be nil when the workflow has no step that chooses.
func New(flow *workflow.Workflow, history []conversation.Message, choose Selector) (*Cursor, error) {
	c := &Cursor{flow: flow, history: history, selector: choose, visits: map[string]int{}, joins: map[string]*join{}}
	if err := c.enter(firstDecision(flow), "", nil); err != nil {
		return nil, err
	}
	return c, c.checkLimit()
}

// Round are the steps that are to run now, in the order of their numbers. There are none when
// the turn is over.
func (c *Cursor) Round() []Task { return c.round }

// Advance goes on with the results of the round, one for each step in its order. It fails with why
// the turn ends without an answer: the failure of the first step that it does not survive,
// agent_contract when a step asks for what the workflow does not allow, and policy_budget when
// there are no steps left.
func (c *Cursor) Advance(results []execution.Result) error {
	ended := c.round
	c.round = nil
	for i, r := range results {
		if err := c.TurnError(ended[i], r); err != nil {
			return err
		}
	}
	for i, r := range results {
		task := ended[i]
		from, seen := task.Decision.Step, task.Prior
		if r.Failure == nil {
			seen = append(slices.Clip(seen), task.Number)
		}
		d, err := nextDecision(c.flow, from, r)
		switch {
		case err != nil:
			return err
		case !d.EndsTurn() && r.Failure == nil && len(r.Tasks) > 0:
			c.startTasks(from, r.Tasks, d, seen)
		case d.EndsTurn() && len(from.Parallel) > 0 && !r.InputRequired && !r.Stopped:
			err = c.startBranches(from, seen)
		case !d.EndsTurn():
			err = c.enter(d, from.Fork, seen)
		}
		if err != nil {
			return err
		}
	}
	return c.checkLimit()
}

// TurnError says why the turn ends with a result of a step, whatever the others of its round lead
// to; nil when it goes on, or ends with an answer.
func (c *Cursor) TurnError(task Task, result execution.Result) error {
	_, err := nextDecision(c.flow, task.Decision.Step, result)
	return err
}

// enter comes to a step in a branch of a fork, or in none.
func (c *Cursor) enter(d routing.Decision, fork string, seen []int) error {
	for asked := false; ; {
		if fork != "" && d.Step.Name == c.joins[fork].next.Step.Name {
			return c.endBranch(fork, seen)
		}
		if other, ok := ruleDecision(c.flow, d.Step, c.history); ok && !asked {
			d, asked = other, true
			continue
		}
		other, ok := limitDecision(c.flow, d.Step, c.visits[d.Step.Name])
		if !ok {
			break
		}
		d = other
	}
	c.visits[d.Step.Name]++
	switch {
	case d.Step.Chooses():
		c.choices++
		chosen, err := c.selector(c.choices, c.number+1, d.Step)
		if err != nil {
			return err
		}
		return c.enter(chosen, fork, seen)
	case d.Step.Agent == "":
		return c.startBranches(d.Step, seen)
	}
	c.number++
	c.round = append(c.round, Task{Number: c.number, Decision: d, Prior: seen})
	return nil
}

// startBranches begins the branches of a step.
func (c *Cursor) startBranches(step workflow.Step, seen []int) error {
	c.joins[step.Name] = &join{
		running: len(step.Parallel), fork: step.Fork,
		next: fixedDecision(c.flow.Steps[step.Join], fmt.Sprintf("all %d branches of %s have come to %s", len(step.Parallel), step.Name, step.Join)),
	}
	for i, head := range step.Parallel {
		begun := fixedDecision(c.flow.Steps[head], fmt.Sprintf("%s is branch %d of %d of %s", head, i+1, len(step.Parallel), step.Name))
		if err := c.enter(begun, step.Name, seen); err != nil {
			return err
		}
	}
	return nil
}

// endBranch ends a branch of a fork. Behind the last one comes the join.
func (c *Cursor) endBranch(fork string, seen []int) error {
	m := c.joins[fork]
	m.running--
	m.prior = append(m.prior, seen...)
	if m.running > 0 {
		c.startTask(m, seen)
		return nil
	}
	delete(c.joins, fork)
	slices.Sort(m.prior)
	return c.enter(m.next, m.fork, slices.Compact(m.prior))
}

// checkLimit refuses more steps than the workflow allows.
func (c *Cursor) checkLimit() error {
	if c.number <= c.flow.MaxSteps {
		return nil
	}
	return failure.Newf(failure.PolicyBudget, routing.Op,
		"the workflow %s took %d steps without an end; limits.steps allows no more", c.flow.Name, c.flow.MaxSteps)
}

// PriorResults finds what is known of the steps of a round; nil for those that are still to run. Up
// to reached it is known that the turn went on: a step below, of which nothing is known, has
// failed.
func PriorResults(round []Task, known []execution.Result, reached int) []*execution.Result {
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
