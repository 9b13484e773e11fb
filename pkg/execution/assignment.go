package execution

import (
	"strings"
	"time"
)

// Assignment describes what a step must do (contract OC-28). An agent that runs outside of a workflow has the zero
// Assignment and answers the conversation.
type Assignment struct {
	Goal           string // what the user wants from the turn, cut to 200 characters
	Task           string // what this step must do (the goal, unless a planner set a task)
	ExpectedOutput string // description of the result (may be empty)
	Constraints    []string
	Priority       int // priority of the turn, 0 to 10
	Tags           []string
	Ancestors      []string      // targets of the turns that led to the step, and its agent; a remote turn has none of them as its target
	Timeout        time.Duration // remaining time of the turn (0 means unknown)
	Plan           *PlanRequest  // asks the step to plan tasks (nil means that it does not plan)
}

// Brief returns the parts of the assignment that the conversation does not contain: the task, the constraints and
// the expected output (empty if there are none).
func (a Assignment) Brief() string {
	var parts []string
	if a.Task != a.Goal {
		parts = append(parts, "What you are asked to do:\n\n"+a.Task)
	}
	if len(a.Constraints) > 0 {
		parts = append(parts, "What you have to keep to:\n\n- "+strings.Join(a.Constraints, "\n- "))
	}
	if a.ExpectedOutput != "" {
		parts = append(parts, "What is expected of you:\n\n"+a.ExpectedOutput)
	}
	return strings.Join(parts, "\n\n")
}

// PlanRequest asks a step to plan tasks. The orchestrator rejects tasks for other agents, and more than Max tasks.
type PlanRequest struct {
	Agents   []PlanAgent // the agents that may get tasks
	Max      int         // maximum number of tasks, 1 to MaxTasks
	Parallel bool        // the tasks run concurrently, so none may depend on another
}

// PlanAgent is an agent to which a planner may assign tasks.
type PlanAgent struct {
	Name        string
	Description string // one line from its author (may be empty)
}

// Names returns the names of the agents that may get tasks, in their order.
func (p PlanRequest) Names() []string {
	var all []string
	for _, a := range p.Agents {
		all = append(all, a.Name)
	}
	return all
}

// PlannedTask is a task that a planner assigns to an agent.
type PlannedTask struct {
	Agent string
	Text  string // what the agent must do, at most MaxTaskBytes
}
