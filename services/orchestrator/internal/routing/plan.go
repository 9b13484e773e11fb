package routing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// planned is who works when the tasks of a planner are done. It fails with agent_contract when
// the workflow does not allow them: agents ask, and do not decide (contract OC-13).
func planned(w *workflow.Workflow, from workflow.Step, tasks []execution.PlannedTask) (Decision, error) {
	p := from.Plan
	if p == nil {
		return Decision{}, failure.Newf(failure.AgentContract, Op,
			"agent %s makes %d tasks in step %s, which has no plan; declare plan.agents there", from.Agent, len(tasks), from.Name)
	}
	if len(tasks) > p.Max {
		return Decision{}, failure.Newf(failure.AgentContract, Op,
			"agent %s makes %d tasks in step %s; plan.max allows %d", from.Agent, len(tasks), from.Name, p.Max)
	}
	for i, task := range tasks {
		if !slices.Contains(p.Agents, task.Agent) {
			return Decision{}, failure.Newf(failure.AgentContract, Op,
				"agent %s gives task %d to %q; the workflow allows %s", from.Agent, i+1, task.Agent, strings.Join(p.Agents, ", "))
		}
		if strings.TrimSpace(task.Text) == "" || len(task.Text) > execution.MaxTaskText {
			return Decision{}, failure.Newf(failure.AgentContract, Op,
				"agent %s gives %s a task of %d bytes; use 1 to %d, and not only white space", from.Agent, task.Agent, len(task.Text), execution.MaxTaskText)
		}
	}
	return fixed(w.Steps[from.Next], fmt.Sprintf("all %d tasks of %s are done, and %s follows", len(tasks), from.Name, from.Next)), nil
}

// plan begins the tasks of a planner: all of them, or the first.
func (c *Course) plan(from workflow.Step, tasks []execution.PlannedTask, join Decision, seen []int) {
	m := &meet{left: len(tasks), join: join, fork: from.Fork}
	c.meeting[from.Name] = m
	for i, task := range tasks {
		m.later = append(m.later, from.PlannedStep(i+1, task))
	}
	c.later(m, seen)
	for from.Plan.Parallel && len(m.later) > 0 {
		c.later(m, seen)
	}
}

// later begins the next task of a planner, if there is one. It gets the results of those before
// it, when they are done one after the other.
func (c *Course) later(m *meet, seen []int) {
	if len(m.later) == 0 {
		return
	}
	step := m.later[0]
	m.later = m.later[1:]
	c.number++
	c.round = append(c.round, Task{Number: c.number, Prior: seen, Decision: Decision{
		Step: step, Reason: fmt.Sprintf("%s is a task of %s", step.Name, step.Fork),
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED, Confidence: learned, Alternatives: without(c.flow.Steps[step.Fork].Plan.Agents, step.Agent),
	}})
}

func without(agents []string, chosen string) []string {
	return slices.DeleteFunc(slices.Clone(agents), func(a string) bool { return a == chosen })
}
