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

// planDecision returns the decision that follows once the tasks of a planner are done. It fails with
// agent_contract if the workflow forbids one of the tasks (contract OC-13).
func planDecision(w *workflow.Workflow, from workflow.Step, tasks []execution.PlannedTask) (routing.Decision, error) {
	p := from.Plan
	if p == nil {
		return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
			"agent %s makes %d tasks in step %s, which has no plan; declare plan.agents there", from.Agent, len(tasks), from.Name)
	}
	if len(tasks) > p.MaxTasks {
		return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
			"agent %s makes %d tasks in step %s; plan.max allows %d", from.Agent, len(tasks), from.Name, p.MaxTasks)
	}
	for i, task := range tasks {
		if !slices.Contains(p.Agents, task.Agent) {
			return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
				"agent %s gives task %d to %q; the workflow allows %s", from.Agent, i+1, task.Agent, strings.Join(p.Agents, ", "))
		}
		if strings.TrimSpace(task.Text) == "" || len(task.Text) > execution.MaxTaskBytes {
			return routing.Decision{}, failure.Newf(failure.AgentContract, routing.Op,
				"agent %s gives %s a task of %d bytes; use 1 to %d, and not only white space", from.Agent, task.Agent, len(task.Text), execution.MaxTaskBytes)
		}
	}
	return fixedDecision(w.Steps[from.Next], fmt.Sprintf("all %d tasks of %s are done, and %s follows", len(tasks), from.Name, from.Next)), nil
}

// startTasks begins the tasks of a planner. It begins all of them, or only the first if they are sequential.
func (c *Cursor) startTasks(from workflow.Step, tasks []execution.PlannedTask, next routing.Decision, prior []int) {
	j := &openJoin{runningCount: len(tasks), next: next, fork: from.Fork}
	c.joins[from.Name] = j
	for i, task := range tasks {
		j.queuedTasks = append(j.queuedTasks, from.PlannedStep(i+1, task))
	}
	c.startTask(j, prior)
	for from.Plan.Parallel && len(j.queuedTasks) > 0 {
		c.startTask(j, prior)
	}
}

// startTask begins the next queued task of a planner, if there is one. A sequential task receives the results of
// the earlier tasks.
func (c *Cursor) startTask(j *openJoin, prior []int) {
	if len(j.queuedTasks) == 0 {
		return
	}
	step := j.queuedTasks[0]
	j.queuedTasks = j.queuedTasks[1:]
	c.lastStep++
	c.round = append(c.round, Task{Number: c.lastStep, PriorSteps: prior, Decision: routing.Decision{
		Step: step, Reason: fmt.Sprintf("%s is a task of %s", step.Name, step.Fork),
		Strategy: troupev1.RoutingStrategy_ROUTING_STRATEGY_LEARNED, Confidence: learnedConfidence,
		Alternatives: withoutAgent(c.flow.Steps[step.Fork].Plan.Agents, step.Agent),
	}})
}

func withoutAgent(agents []string, chosen string) []string {
	return slices.DeleteFunc(slices.Clone(agents), func(a string) bool { return a == chosen })
}
