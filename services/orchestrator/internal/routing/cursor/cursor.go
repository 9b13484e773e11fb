// Package cursor tracks the position of a turn in its workflow: which steps run next, and when the turn ends. It
// has no clock and does no I/O. So an orchestrator that takes over the turn computes the same steps.
package cursor

import (
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Task is one step to run.
type Task struct {
	Number   int // number of the step in the turn, from 1
	Decision routing.Decision
	// PriorSteps lists the numbers of the earlier steps whose results this step receives, in order. After a join
	// it lists the steps of all branches.
	PriorSteps []int
}

// IsHidden reports whether the text of the step does not become part of the conversation.
func (t Task) IsHidden() bool { return len(t.Decision.Step.Routes) > 0 || t.IsBranch() }

// IsBranch reports whether the step belongs to a branch, so that other steps may run at the same time.
func (t Task) IsBranch() bool { return t.Decision.Step.Fork != "" }

// Cursor is the position of one turn in its workflow. It advances in rounds: all steps of a round run at once. The
// next round is computed when all of them have ended.
//
// The cursor depends only on the workflow, the history at the start of the turn, the results so far and the
// recorded choices. So an orchestrator that takes over the turn gets the same steps, with the same numbers and
// reasons. Only one goroutine uses it.
type Cursor struct {
	flow        *workflow.Workflow
	history     []conversation.Message
	selector    Selector
	choiceCount int // number of choices made so far
	round       []Task
	lastStep    int                  // number of the last step
	waiting     []execution.Result   // results of branches whose calls wait, in the last round
	visits      map[string]int       // how often the turn entered each step, by name
	joins       map[string]*openJoin // open forks and planners, by name of their step
}

// openJoin tracks a fork whose branches have not all ended, or a planner whose tasks have not all ended.
type openJoin struct {
	runningCount int              // branches or tasks that have not ended
	priorSteps   []int            // numbers of the ended steps
	next         routing.Decision // decision that follows when all have ended
	fork         string           // the enclosing fork (empty when there is none)
	queuedTasks  []workflow.Step  // sequential tasks that have not begun
}

// Selector chooses among the routes of a step that has no agent. number is the number of this choice in the turn,
// from 1. An earlier owner of the turn may have recorded the choice under this number. next is the number that the
// chosen step will get.
type Selector func(number, next int, step workflow.Step) (routing.Decision, error)

// New returns the cursor of a turn that starts with the given history. The last message of the history is the
// turn's own. The selector may be nil if no step of the workflow needs a choice. New fails with policy_budget if
// the first round has more steps than the workflow allows.
func New(flow *workflow.Workflow, history []conversation.Message, selector Selector) (*Cursor, error) {
	c := &Cursor{flow: flow, history: history, selector: selector, visits: map[string]int{}, joins: map[string]*openJoin{}}
	if err := c.enter(firstDecision(flow), "", nil); err != nil {
		return nil, err
	}
	return c, c.checkLimit()
}

// Round returns the steps to run now, ordered by number (empty when the turn has ended).
func (c *Cursor) Round() []Task { return c.round }

// WaitingBranches returns the results of the branches with which the turn ends, because their calls wait for answers
// (empty when there are none). The turn that brings the answers runs their steps again under the same numbers.
func (c *Cursor) WaitingBranches() []execution.Result { return c.waiting }

// Advance moves to the next round. results holds the results of the current round, in the order of its steps. The turn
// ends with the round if calls of it wait.
// Advance fails if the turn ends without an answer. If a failed step ends the turn, it returns the failure of that
// step. It fails with agent_contract if a step asks for something that the workflow forbids, and with
// policy_budget if no more steps are allowed.
func (c *Cursor) Advance(results []execution.Result) error {
	ended := c.round
	c.round = nil
	if err := c.checkRound(ended, results); err != nil || len(c.waiting) > 0 {
		return err
	}
	for i, r := range results {
		task := ended[i]
		from, prior := task.Decision.Step, task.PriorSteps
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

// checkRound returns the error with which a round ends the turn (nil if there is none), and notes the branches that wait.
func (c *Cursor) checkRound(ended []Task, results []execution.Result) error {
	for i, r := range results {
		if err := c.TurnError(ended[i], r); err != nil {
			return err
		}
		if len(r.Pending) > 0 && ended[i].IsBranch() {
			c.waiting = append(c.waiting, r)
		}
	}
	return pendingcall.CheckTotal(c.waiting)
}

// TurnError returns the error with which a result ends the turn (nil if the turn continues or has an answer). It
// ignores the other results of the round.
func (c *Cursor) TurnError(task Task, result execution.Result) error {
	_, err := nextDecision(c.flow, task.Decision.Step, result)
	return err
}

// enter adds a step to the next round, inside the branch of a fork or outside of any fork. A rule or a limit may
// lead to another step instead.
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
	c.round = append(c.round, Task{Number: c.lastStep, Decision: d, PriorSteps: prior})
	return nil
}

// startBranches enters all branches of a fork.
func (c *Cursor) startBranches(step workflow.Step, prior []int) error {
	c.joins[step.Name] = &openJoin{
		runningCount: len(step.Parallel), fork: step.Fork,
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

// endBranch ends one branch of a fork. After the last branch, the join is entered.
func (c *Cursor) endBranch(fork string, prior []int) error {
	j := c.joins[fork]
	j.runningCount--
	j.priorSteps = append(j.priorSteps, prior...)
	if j.runningCount > 0 {
		c.startTask(j, prior)
		return nil
	}
	delete(c.joins, fork)
	slices.Sort(j.priorSteps)
	return c.enter(j.next, j.fork, slices.Compact(j.priorSteps))
}

// checkLimit fails when the turn has more steps than the workflow allows.
func (c *Cursor) checkLimit() error {
	if c.lastStep <= c.flow.MaxSteps {
		return nil
	}
	return failure.Newf(failure.PolicyBudget, routing.Op,
		"the workflow %s took %d steps without an end; limits.steps allows no more", c.flow.Name, c.flow.MaxSteps)
}

// PriorResults returns the results that the steps of a round already had before a takeover (nil for steps that
// still have to run). reached is the highest step that the turn is known to have reached. A step of an earlier
// round without a result must have failed, because the turn continued after it.
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
