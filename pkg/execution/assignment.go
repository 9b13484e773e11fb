package execution

import (
	"strings"
	"time"
)

// Assignment is what a step is asked to do (contract OC-28). The zero Assignment belongs to an agent that is run by hand: it does
// what the conversation wants.
type Assignment struct {
	Goal           string // what the user wants of the turn, cut to 200 characters
	Task           string // what this step is asked to do (the goal unless a planner asked for something else)
	ExpectedOutput string // description of the result (may be empty)
	Constraints    []string
	Priority       int // of the turn, 0 to 10
	Tags           []string
	Timeout        time.Duration // what was left of the time of the turn (0 means unknown)
	Plan           *PlanRequest  // asks the step for tasks (nil means that it does not plan)
}

// Brief returns the part of the request that the conversation does not contain: the task, the constraints and the
// expected output. It is empty when there is none.
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

// PlanRequest asks for tasks. The orchestrator rejects tasks for other agents, and more than Max of them.
type PlanRequest struct {
	Agents   []PlanAgent // the agents that may get tasks
	Max      int         // 1 to MaxTasks
	Parallel bool        // the tasks run at once, so none may depend on another
}

// PlanAgent is an agent that may get tasks.
type PlanAgent struct {
	Name        string
	Description string // one line from its author (may be empty)
}

// Names returns the names of the agents that may get tasks, in order.
func (p PlanRequest) Names() []string {
	var all []string
	for _, a := range p.Agents {
		all = append(all, a.Name)
	}
	return all
}

// PlannedTask is a piece of work that a planner gives to an agent.
type PlannedTask struct {
	Agent string
	Text  string // what the agent is asked to do, at most MaxTaskText bytes
}
