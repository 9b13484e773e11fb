package cursor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// planDecision is who works when the tasks of a planner are done. It fails with agent_contract when
// the workflow does not allow them: agents ask, and do not decide (contract OC-13).
func planDecision(w *workflow.Workflow, from workflow.Step, tasks []execution.PlannedTask) (routing.Decision, error) {
	p := from.Plan
	if p == nil {
		return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
			"agent %s makes %d tasks in step %s, which has no plan; declare plan.agents there", from.Agent, len(tasks), from.Name)
	}
	if len(tasks) > p.Max {
		return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
			"agent %s makes %d tasks in step %s; plan.max allows %d", from.Agent, len(tasks), from.Name, p.Max)
	}
	for i, task := range tasks {
		if !slices.Contains(p.Agents, task.Agent) {
			return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
				"agent %s gives task %d to %q; the workflow allows %s", from.Agent, i+1, task.Agent, strings.Join(p.Agents, ", "))
		}
		if strings.TrimSpace(task.Text) == "" || len(task.Text) > execution.MaxTaskText {
			return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
				"agent %s gives %s a task of %d bytes; use 1 to %d, and not only white space", from.Agent, task.Agent, len(task.Text), execution.MaxTaskText)
		}
	}
	return fixedDecision(w.Steps[from.Next], fmt.Sprintf("all %d tasks of %s are done, and %s follows", len(tasks), from.Name, from.Next)), nil
}

// startTasks begins the tasks of a planner: all of them, or the first.
func (c *Cursor) startTasks(from workflow.Step, tasks []execution.PlannedTask, next routing.Decision, seen []int) {
	m := &join{running: len(tasks), next: next, fork: from.Fork}
	c.joins[from.Name] = m
	for i, task := range tasks {
		m.queued = append(m.queued, from.PlannedStep(i+1, task))
	}
	c.startTask(m, seen)
	for from.Plan.Parallel && len(m.queued) > 0 {
		c.startTask(m, seen)
	}
}

// startTask begins the next task of a planner, if there is one. It gets the results of those before
// it, when they are done one after the other.
func (c *Cursor) startTask(m *join, seen []int) {
	if len(m.queued) == 0 {
		return
	}
	step := m.queued[0]
	m.queued = m.queued[1:]
	c.number++
	c.round = append(c.round, Task{Number: c.number, Prior: seen, Decision: routing.Decision{
		Step: step, Reason: fmt.Sprintf("%s is a task of %s", step.Name, step.Fork),
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED, Confidence: learnedConfidence, Alternatives: without(c.flow.Steps[step.Fork].Plan.Agents, step.Agent),
	}})
}

func without(agents []string, chosen string) []string {
	return slices.DeleteFunc(slices.Clone(agents), func(a string) bool { return a == chosen })
}
