package execution

import (
	"strings"
	"time"
)

// DefaultPriority is that of a request that names none (contract OC-28), of 0 to MaxPriority.
const (
	DefaultPriority = 5
	MaxPriority     = 10
)

// Bounds of what planners say, as on the wire.
const (
	MaxTasks    = 16
	MaxTaskText = 4 << 10 // bytes
)

// Asked is what a step is asked to do (contract OC-28). The zero Asked is that of an agent that is
// run by hand: it does what the conversation wants.
type Asked struct {
	Goal           string // what the user wants of the turn, cut to 200 characters
	Task           string // what this step is asked to do; the goal when nobody asked for anything else
	ExpectedOutput string // what the result shall be, in words; empty: nobody said
	Constraints    []string
	Priority       int // of the turn, 0 to 10
	Tags           []string
	Timeout        time.Duration // what was left of the time of the turn; 0: nobody said
	Plan           *PlanRequest  // the step shall say who does what next; nil: it does not plan
}

// Brief is what an agent is to be told that the conversation does not say: the task, what it has to
// keep to, and what is expected. It is empty when there is nothing of it.
func (a Asked) Brief() string {
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

// PlanRequest asks for tasks. The orchestrator refuses those for other agents, and more than Max.
type PlanRequest struct {
	Agents   []PlanAgent // that may have tasks
	Max      int         // 1 to MaxTasks
	Parallel bool        // they run at once: none may build on another
}

// PlanAgent is an agent that may have tasks.
type PlanAgent struct {
	Name        string
	Description string // one line from its author; empty: not known
}

// Names are those of the agents that may have tasks, in order.
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
	Text  string // what it is asked to do, at most MaxTaskText bytes
}
