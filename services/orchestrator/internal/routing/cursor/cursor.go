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

// Task is one step to run.
type Task struct {
	Number   int // of the step in the turn, from 1
	Decision routing.Decision
	// Prior are the numbers of the earlier steps whose results this one gets, in order. After a join
	// these are the steps of all branches.
	Prior []int
}

// IsHidden reports whether the text of the step is kept out of the conversation.
func (t Task) IsHidden() bool { return len(t.Decision.Step.Routes) > 0 || t.IsBranch() }

// IsBranch reports whether the step is in a branch, so that others may run at the same time.
func (t Task) IsBranch() bool { return t.Decision.Step.Fork != "" }

// Cursor is the position of one turn in its workflow. It advances in rounds: all steps of a round run
// at once, and the next round is decided when all of them have ended.
//
// The cursor depends only on the workflow, the history at the start of the turn, the results so far
// and the recorded choices. So an orchestrator that takes the turn over gets the same steps, with the
// same numbers, for the same reasons. One goroutine uses it.
type Cursor struct {
	flow        *workflow.Workflow
	history     []conversation.Message
	selector    Selector
	choiceCount int // how many were made
	round       []Task
	lastStep    int              // of the last step
	visits      map[string]int   // how often the turn entered a step, by step
	joins       map[string]*join // open forks and planners, by step
}

// join is a fork with branches that have not reached its join, or a planner with open tasks.
type join struct {
	running int              // branches or tasks that have not ended
	prior   []int            // steps of those that have ended
	next    routing.Decision // what follows when all have ended
	fork    string           // the enclosing fork (empty when there is none)
	queued  []workflow.Step  // sequential tasks that have not begun
}

// Selector chooses among the routes of a step that has no agent. number counts the choices of the turn, from 1.
// An earlier owner of the turn has recorded this choice under the same number. next is the number that the
// chosen step gets.
type Selector func(number, next int, step workflow.Step) (routing.Decision, error)

// New returns the cursor of a turn that begins with a history whose last message is the turn's own.
// The selector may be nil when the workflow has no step without an agent and with routes. It fails
// with policy_budget when the first round has more steps than the workflow allows.
func New(flow *workflow.Workflow, history []conversation.Message, selector Selector) (*Cursor, error) {
	c := &Cursor{flow: flow, history: history, selector: selector, visits: map[string]int{}, joins: map[string]*join{}}
	if err := c.enter(firstDecision(flow), "", nil); err != nil {
		return nil, err
	}
	return c, c.checkLimit()
}

// Round returns the steps to run now, by number (none when the turn ends).
func (c *Cursor) Round() []Task { return c.round }

// Advance moves to the next round, given the results of this one in the order of its steps. It fails
// when the turn ends without an answer: with the failure of the first step that the turn does not
// survive, with agent_contract when a step asks for something that the workflow does not allow, and
// with policy_budget when no steps are left.
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
		from, prior := task.Decision.Step, task.Prior
		if r.Failure == nil {
			prior = append(slices.Clip(prior), task.Number)
		}
		d, err := nextDecision(c.flow, from, r)
		switch {
		case err != nil:
			return err
		case !d.EndsTurn() && r.Failure == nil && len(r.Tasks) > 0:
			c.startTasks(from, r.Tasks, d, prior)
		case d.EndsTurn() && len(from.Parallel) > 0 && !r.InputRequired && !r.Stopped:
			err = c.startBranches(from, prior)
		case !d.EndsTurn():
			err = c.enter(d, from.Fork, prior)
		}
		if err != nil {
			return err
		}
	}
	return c.checkLimit()
}

// TurnError returns the error with which a result ends the turn, whatever the other results of the
// round are (nil when the turn continues or ends with an answer).
func (c *Cursor) TurnError(task Task, result execution.Result) error {
	_, err := nextDecision(c.flow, task.Decision.Step, result)
	return err
}

// enter enters a step, in a branch of a fork or outside of branches. A rule or a limit may lead to
// another step instead.
func (c *Cursor) enter(d routing.Decision, fork string, prior []int) error {
	for byRule := false; ; {
		if fork != "" && d.Step.Name == c.joins[fork].next.Step.Name {
			return c.endBranch(fork, prior)
		}
		if other, ok := ruleDecision(c.flow, d.Step, c.history); ok && !byRule {
			d, byRule = other, true
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
		c.choiceCount++
		chosen, err := c.selector(c.choiceCount, c.lastStep+1, d.Step)
		if err != nil {
			return err
		}
		return c.enter(chosen, fork, prior)
	case d.Step.Agent == "":
		return c.startBranches(d.Step, prior)
	}
	c.lastStep++
	c.round = append(c.round, Task{Number: c.lastStep, Decision: d, Prior: prior})
	return nil
}

// startBranches enters all branches of a fork.
func (c *Cursor) startBranches(step workflow.Step, prior []int) error {
	c.joins[step.Name] = &join{
		running: len(step.Parallel), fork: step.Fork,
		next: fixedDecision(c.flow.Steps[step.Join], fmt.Sprintf("all %d branches of %s have come to %s", len(step.Parallel), step.Name, step.Join)),
	}
	for i, head := range step.Parallel {
		begun := fixedDecision(c.flow.Steps[head], fmt.Sprintf("%s is branch %d of %d of %s", head, i+1, len(step.Parallel), step.Name))
		if err := c.enter(begun, step.Name, prior); err != nil {
			return err
		}
	}
	return nil
}

// endBranch ends a branch of a fork. The join follows the last one.
func (c *Cursor) endBranch(fork string, prior []int) error {
	j := c.joins[fork]
	j.running--
	j.prior = append(j.prior, prior...)
	if j.running > 0 {
		c.startTask(j, prior)
		return nil
	}
	delete(c.joins, fork)
	slices.Sort(j.prior)
	return c.enter(j.next, j.fork, slices.Compact(j.prior))
}

// checkLimit fails when the turn has more steps than the workflow allows.
func (c *Cursor) checkLimit() error {
	if c.lastStep <= c.flow.MaxSteps {
		return nil
	}
	return failure.Newf(failure.PolicyBudget, routing.Op,
		"the workflow %s took %d steps without an end; limits.steps allows no more", c.flow.Name, c.flow.MaxSteps)
}

// PriorResults returns the results that the steps of a round had before the turn was taken over (nil
// for steps that still have to run). reached is the number of a step that the turn is known to have
// reached. A step of an earlier round without a result has failed, because the turn went past it.
func PriorResults(round []Task, prior []execution.Result, reached int) []*execution.Result {
	found := make([]*execution.Result, len(round))
	last := round[len(round)-1].Number
	for _, r := range prior {
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
