// Package planning provides the tool with which a model plans a step.
package planning

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// AddTask is the name of the tool that adds a task to the plan of a step (ADR 0023). While a step plans, its model
// gets this tool in addition to the agent's own.
const AddTask = "add_task"

// Planner is the tool add_task, and collects the tasks that the model adds. It makes the same checks as the
// orchestrator, so that the model can correct an invalid task. The tasks come from the events of the calls,
// because a call of an earlier attempt has an event but does not run the tool again.
type Planner struct {
	request execution.PlanRequest
	tasks   []execution.PlannedTask // tasks added so far; only the goroutine of the turn uses them

	mu         sync.Mutex
	addedCount int // accepted calls, including calls whose events are still to come
}

// taskArguments holds the arguments of add_task.
type taskArguments struct {
	Agent string `json:"agent"`
	Task  string `json:"task"`
}

// New returns the planner of a step. It returns nil if the step does not plan.
func New(request *execution.PlanRequest) *Planner {
	if request == nil {
		return nil
	}
	return &Planner{request: *request}
}

// AppendTool returns the agent's tools followed by the planner. It fails with agent_validation if the agent
// already has a tool of that name.
func (p *Planner) AppendTool(own *tool.Set) (*tool.Set, error) {
	if p == nil {
		return own, nil
	}
	all, err := tool.NewSet(append(own.Tools(), p)...)
	if err != nil {
		return nil, failure.Newf(failure.AgentValidation, "agent.Run",
			"the step plans, and the agent has a tool %s of its own; rename that", AddTask).Because(err)
	}
	return all, nil
}

// AllowedTools adds the planner to the tools that the step may use (nil means all), because a step that plans may
// always use it.
func (p *Planner) AllowedTools(only *execution.Tools) *execution.Tools {
	if only == nil || p == nil {
		return only
	}
	both := *only // do not modify the shared step
	both.Names = append(slices.Clone(only.Names), AddTask)
	return &both
}

// Tasks returns the tasks so far.
func (p *Planner) Tasks() []execution.PlannedTask {
	if p == nil {
		return nil
	}
	return p.tasks
}

// Spec implements tool.Tool.
func (p *Planner) Spec() llm.ToolSpec {
	how := "They run one after the other, in the order of the calls, and each gets the results of those before it."
	if p.request.Parallel {
		how = "They run at once, so that none may build on the result of another."
	}
	var agents []string
	for _, a := range p.request.Agents {
		agents = append(agents, strings.TrimSpace("- "+a.Name+": "+a.Description))
	}
	schema, err := json.Marshal(map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"agent", "task"},
		"properties": map[string]any{
			"agent": map[string]any{"type": "string", "enum": p.request.Names(), "description": "who does it"},
			"task":  map[string]any{"type": "string", "description": "what to do, in full: it reads this and the conversation"},
		},
	})
	if err != nil {
		schema = nil // strings are always encoded
	}
	return llm.ToolSpec{
		Name: AddTask, Schema: schema,
		Description: fmt.Sprintf("Gives a task to an agent, which begins when you have ended. At most %d tasks. %s The agents:\n%s",
			p.request.Max, how, strings.Join(agents, "\n")),
	}
}

// Effect implements tool.Effector. A repeated call adds the same task again.
func (p *Planner) Effect() execution.Effect { return execution.Read }

// Scope implements tool.Scoper. Tasks stay in the mesh.
func (p *Planner) Scope() tool.Scope { return tool.Scope{} }

// Call implements tool.Tool.
func (p *Planner) Call(_ context.Context, args json.RawMessage) (tool.Result, error) {
	planned, err := p.parseTask(args)
	if err != nil {
		return tool.Result{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addedCount >= p.request.Max {
		return tool.Result{}, failure.Newf(failure.AgentContract, AddTask, "there are %d tasks already, and no more are allowed", p.addedCount)
	}
	p.addedCount++
	return tool.Result{Text: fmt.Sprintf("The task is given to %s.", planned.Agent)}, nil
}

// parseTask returns the task in the arguments of a call, or an error if the task is not allowed.
func (p *Planner) parseTask(args json.RawMessage) (said execution.PlannedTask, err error) {
	var t taskArguments
	if err := json.Unmarshal(args, &t); err != nil {
		return said, failure.New(failure.AgentValidation, AddTask, "want an object with agent and task, both text").Because(err)
	}
	if !slices.Contains(p.request.Names(), t.Agent) {
		return said, failure.Newf(failure.AgentContract, AddTask, "agent: there is no %q; use one of %s", t.Agent, strings.Join(p.request.Names(), ", "))
	}
	if t.Task = strings.TrimSpace(t.Task); t.Task == "" || len(t.Task) > execution.MaxTaskBytes {
		return said, failure.Newf(failure.AgentValidation, AddTask, "task: %d bytes; use 1 to %d, and not only white space", len(t.Task), execution.MaxTaskBytes)
	}
	return execution.PlannedTask{Agent: t.Agent, Text: t.Task}, nil
}

// RecordCall adds the task of a finished call of add_task. It reports whether the call was one. A nil planner
// records nothing.
func (p *Planner) RecordCall(done event.ToolFinished) bool {
	if p == nil || done.Tool != AddTask {
		return false
	}
	said, err := p.parseTask(json.RawMessage(done.Arguments))
	if done.Status != event.ToolSuccess || err != nil {
		return true
	}
	p.tasks = append(p.tasks, said)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addedCount = max(p.addedCount, len(p.tasks))
	return true
}
