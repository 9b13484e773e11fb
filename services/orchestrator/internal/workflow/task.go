package workflow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/execution"
)

// Limits of the fields task, expects and constraints. The wire has the same limits.
const (
	maxTaskBytes       = execution.MaxTaskBytes // bytes of task, and of expects
	maxConstraints     = 16
	maxConstraintBytes = 1 << 10 // bytes
)

// DefaultTasks is how many tasks a planner may create by default.
const DefaultTasks = 8

// Plan declares which tasks a step may create for other agents when it runs. The tasks run before the next step
// (ADR 0023).
type Plan struct {
	Agents   []string // agents that may get tasks
	MaxTasks int      // maximum number of tasks
	Parallel bool     // tasks run at once (otherwise one after the other)
	Continue bool     // the turn continues when a task fails; the task is marked as failed
}

// PlannedStep returns the step that runs task i of a planner, counted from 1. It is a branch of the planner.
func (s Step) PlannedStep(i int, task execution.PlannedTask) Step {
	return Step{
		Name: fmt.Sprintf("%s[%d]", s.Name, i), Agent: task.Agent, Task: task.Text, Next: s.Next, Fork: s.Name,
		OnError: OnError{Continue: s.Plan.Continue},
	}
}

type planDeclaration struct {
	Agents   []string `yaml:"agents"`
	Max      int      `yaml:"max"`
	Parallel bool     `yaml:"parallel"`
	OnError  string   `yaml:"onError"`
}

// The values of plan.onError.
const (
	onErrorFail     = "fail"
	onErrorContinue = "continue"
)

func (p *planDeclaration) toPlan() *Plan {
	if p == nil {
		return nil
	}
	return &Plan{Agents: p.Agents, MaxTasks: cmp.Or(p.Max, DefaultTasks), Parallel: p.Parallel, Continue: p.OnError == onErrorContinue}
}

// checkTask checks the fields task, expects and constraints of a step.
func (c *checker) checkTask(at func(...any) []any, name string, s stepDeclaration) {
	for _, f := range []struct{ name, text string }{{"task", s.Task}, {"expects", s.Expects}} {
		if len(f.text) > maxTaskBytes {
			c.addProblem(at(f.name),
				"step %s: %s has %d bytes; at most %d are allowed, the rest belongs into the agent's instructions", name, f.name, len(f.text), maxTaskBytes)
		}
	}
	if len(s.Constraints) > maxConstraints {
		c.addProblem(at("constraints"), "step %s: %d constraints are too many; use at most %d", name, len(s.Constraints), maxConstraints)
	}
	for i, text := range s.Constraints {
		if strings.TrimSpace(text) == "" || len(text) > maxConstraintBytes {
			c.addProblem(at("constraints", i), "step %s: constraint %d has %d bytes; use 1 to %d, and not only white space", name, i+1, len(text),
				maxConstraintBytes)
		}
	}
	if s.Workflow == "" && s.Agent == "" && (s.Task != "" || s.Expects != "" || len(s.Constraints) > 0) {
		c.addProblem(at(), "step %s: task, expects and constraints are for a step with an agent, for only that can be asked", name)
	}
}

// checkPlan checks the plan that a step declares.
func (c *checker) checkPlan(at func(...any) []any, name string, s stepDeclaration, agents map[string]bool) {
	p := s.Plan
	if p == nil || s.Workflow != "" {
		return
	}
	if s.Agent == "" || s.Next == "" || len(s.Then) > 0 {
		c.addProblem(at("plan"), "step %s: plan is for a step with an agent and next, which follows its tasks, and without then", name)
	}
	if len(p.Agents) == 0 || len(p.Agents) > execution.MaxTasks {
		c.addProblem(at("plan"), "step %s: plan.agents names %d agents; want 1 to %d", name, len(p.Agents), execution.MaxTasks)
	}
	for i, agent := range p.Agents {
		if agent == "" || len(agents) > 0 && !agents[agent] {
			c.addProblem(at("plan", "agents", i),
				"step %s: plan.agents: unknown agent %q; declared are %s", name, agent, strings.Join(slices.Sorted(maps.Keys(agents)), ", "))
		}
		if slices.Contains(p.Agents[:i], agent) {
			c.addProblem(at("plan", "agents", i), "step %s: plan.agents names %s twice; once is enough for any number of tasks", name, agent)
		}
	}
	if p.Max != 0 {
		c.checkRange(at("plan", "max"), "step "+name+": plan.max", p.Max, execution.MaxTasks)
	}
	if p.OnError != "" && p.OnError != onErrorFail && p.OnError != onErrorContinue {
		c.addProblem(at("plan", "onError"), "step %s: plan.onError %q is not known; use %s or %s", name, p.OnError, onErrorFail, onErrorContinue)
	}
}
