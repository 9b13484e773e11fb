package agent

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

// AddTask is the name of the tool that a model is offered beside those of its agent while the step
// plans (ADR 0023). Each call is one task.
const AddTask = "add_task"

// planner gathers the tasks that a model makes. The tool checks what the orchestrator will, so that
// the model can mend it; what counts is what the loop tells of the calls, for of those of an
// attempt before this one the tool hears nothing.
type planner struct {
	request execution.PlanRequest
	tasks   []execution.PlannedTask // that were made; only the turn uses it

	mu   sync.Mutex
	made int // calls that went well, or are about to
}

// task is what the model says.
type task struct {
	Agent string `json:"agent"`
	Task  string `json:"task"`
}

// offered are the tools of the agent, with that of the planner behind them when the step plans.
func (t *turn) offered(own *tool.Set) (*tool.Set, error) {
	if t.inv.Step.Plan == nil {
		return own, nil
	}
	t.planner = &planner{request: *t.inv.Step.Plan}
	all, err := tool.NewSet(append(own.Tools(), t.planner)...)
	if err != nil {
		return nil, failure.Newf(failure.AgentValidation, "agent.Run",
			"the step plans, and the agent has a tool %s of its own; rename that", AddTask).Because(err)
	}
	return all, nil
}

// allowed are the tools that the step may use; nil: all. That of the planner is none of the agent's,
// so it is allowed whenever the step plans.
func (t *turn) allowed() *execution.Tools {
	only := t.inv.Step.Tools
	if only == nil || t.planner == nil {
		return only
	}
	both := *only // the step is shared
	both.Names = append(slices.Clone(only.Names), AddTask)
	return &both
}

// Spec implements tool.Tool.
func (p *planner) Spec() llm.ToolSpec {
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
			"task":  map[string]any{"type": "string", "description": "what it shall do, in full: it reads this and the conversation"},
		},
	})
	if err != nil {
		schema = nil // strings can be written
	}
	return llm.ToolSpec{
		Name: AddTask, Schema: schema,
		Description: fmt.Sprintf("Gives a task to an agent, which begins when you have ended. At most %d tasks. %s The agents:\n%s",
			p.request.Max, how, strings.Join(agents, "\n")),
	}
}

// Effect implements tool.Effector: a call that is made again makes the same task.
func (p *planner) Effect() execution.Effect { return execution.Read }

// Scope implements tool.Scoper: its tasks stay in the mesh.
func (p *planner) Scope() tool.Scope { return tool.Scope{} }

// Call implements tool.Tool.
func (p *planner) Call(_ context.Context, args json.RawMessage) (tool.Result, error) {
	said, err := p.read(args)
	if err != nil {
		return tool.Result{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made >= p.request.Max {
		return tool.Result{}, failure.Newf(failure.AgentContract, AddTask, "there are %d tasks already, and no more are allowed", p.made)
	}
	p.made++
	return tool.Result{Text: fmt.Sprintf("The task is given to %s.", said.Agent)}, nil
}

// read are the arguments of a call, when they are those of a task that is allowed.
func (p *planner) read(args json.RawMessage) (said execution.PlannedTask, err error) {
	var t task
	if err := json.Unmarshal(args, &t); err != nil {
		return said, failure.New(failure.AgentValidation, AddTask, "want an object with agent and task, both text").Because(err)
	}
	if !slices.Contains(p.request.Names(), t.Agent) {
		return said, failure.Newf(failure.AgentContract, AddTask, "agent: there is no %q; use one of %s", t.Agent, strings.Join(p.request.Names(), ", "))
	}
	if t.Task = strings.TrimSpace(t.Task); t.Task == "" || len(t.Task) > execution.MaxTaskText {
		return said, failure.Newf(failure.AgentValidation, AddTask, "task: %d bytes; use 1 to %d, and not only white space", len(t.Task), execution.MaxTaskText)
	}
	return execution.PlannedTask{Agent: t.Agent, Text: t.Task}, nil
}

// heard notes the end of a call, and reports whether it was one of the planner's tool. The nil
// planner hears nothing.
func (p *planner) heard(done event.ToolFinished) bool {
	if p == nil || done.Tool != AddTask {
		return false
	}
	said, err := p.read(json.RawMessage(done.Arguments))
	if done.Status != event.ToolSuccess || err != nil {
		return true
	}
	p.tasks = append(p.tasks, said)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = max(p.made, len(p.tasks))
	return true
}
