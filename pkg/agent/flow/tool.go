package flow

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/internal/loop/nested"
	"github.com/troupe-dev/troupe/internal/loop/toolprogress"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/internal/scope"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// MaxDepth is how deep agents that are tools may be nested.
const MaxDepth = 4

// AsToolConfig describes an agent that is a tool to the models that may call it.
type AsToolConfig struct {
	Name        string // (empty means the agent's own)
	Description string // (empty means the agent's own)
}

// AsTool makes a tool of an agent (AD-29). The model that calls it writes what it wants in one text, which begins a session
// of its own: the agent does not see the conversation of its parent. It reads the state of the session as it is, and its
// changes are dropped. What it says last is the result of the tool.
//
// A question to the user becomes a question of the parent, and tool calls that wait become calls of the parent that wait.
// A person who stops such a call stops the whole turn; a handler of the agent that stops its turn stops only that agent.
// The parent does not emit the agent's events, except for the turns of remote agents that begin inside it and the
// warnings of the guard. What its models consume counts as the parent's usage. Untrusted words that the parent has read
// count as read by the agent, and the other way round.
//
// The journal of the step has the agent's model calls and tool calls, under keys that begin with the key of the call. So a
// parent that lost its worker continues in the middle of the agent's work. The effect of the tool is agent.Agent.Effect.
// An agent that is wrapped into another tool, also by tool.WithEffect, runs without a journal; then the effect of the wrapping
// tool counts.
//
// The tool is started and closed with the agent that has it. If more than MaxDepth agents are inside each other, the model
// gets an agent_logic error. Modes: agent_validation, as for tool.Func.
func AsTool(a *agent.Agent, c AsToolConfig) (tool.Tool, error) {
	t := &agentTool{agent: a, effect: a.Effect()}
	type request struct {
		Request string `json:"request" jsonschema:"what you want of it, with all that it has to know"`
	}
	inner, err := tool.Func(cmp.Or(c.Name, a.Name()), cmp.Or(c.Description, a.Description(), "Asks the agent "+a.Name()+"."),
		func(ctx context.Context, in request) (string, error) { return t.run(ctx, in.Request) })
	t.Tool = inner
	return t, err
}

// agentTool is the tool that runs an agent.
type agentTool struct {
	tool.Tool // checks the arguments, and calls run
	agent     *agent.Agent
	effect    execution.Effect
}

// Effect implements tool.Effector.
func (t *agentTool) Effect() execution.Effect { return t.effect }

// Start implements tool.Starter.
func (t *agentTool) Start(ctx context.Context) error { return t.agent.Start(ctx) }

// Close implements tool.Starter.
func (t *agentTool) Close() error { return t.agent.Close() }

// nestKey is the context key of the *nested.Call of a call.
type nestKey struct{}

// CallIn implements nested.Tool.
func (t *agentTool) CallIn(ctx context.Context, args json.RawMessage, n *nested.Call) (tool.Result, error) {
	return t.Call(context.WithValue(ctx, nestKey{}, n), args)
}

// Skip implements nested.Tool.
func (t *agentTool) Skip(ctx context.Context, n *nested.Call) {
	if parent := scope.RunFromContext(ctx); parent != nil {
		parent.Scope.Calls.Skip(n.LastCallNumber)
		parent.AddUsage(n.Usage)
	}
}

// depthKey is the context key of the nesting depth, which counts the agents that are tools.
type depthKey struct{}

// run runs the agent once.
func (t *agentTool) run(ctx context.Context, request string) (string, error) {
	parent := scope.RunFromContext(ctx)
	nest, _ := ctx.Value(nestKey{}).(*nested.Call)
	said := conversation.User(request)
	said.Untrusted = hook.InTool(ctx).Untrusted // the model that wrote the request has read such text
	inv, in := t.invocation(tool.IdempotencyKey(ctx), said, parent, nest)
	depth, _ := ctx.Value(depthKey{}).(int)
	if depth >= MaxDepth {
		return "", failure.Newf(failure.AgentLogic, "flow.AsTool",
			"%s: at most %d agents may be tools inside each other; do it without asking another agent", in.BranchOf(t.agent.Name()), MaxDepth)
	}
	ctx = context.WithValue(context.WithValue(ctx, depthKey{}, depth+1), nestKey{}, nil)
	done, err := t.runToResult(scope.ContextWithScope(ctx, in), inv)
	tool.Quotes(ctx, done.Result.Untrusted)
	if parent != nil {
		parent.AddUsage(done.Result.Usage)
	}
	if nest != nil {
		nest.Usage = done.Result.Usage
		if parent != nil {
			nest.LastCallNumber = in.Calls.Join()
		}
	}
	if nest != nil && len(done.Result.Pending) > 0 {
		nest.Pending = done.Result.Pending
		return "", err
	}
	if done.Escalate {
		hook.InTool(ctx).Escalate()
	}
	if err == nil && done.Result.InputRequired {
		err = tool.AskUser(done.Result.Text)
	}
	return done.Result.Text, err
}

// invocation returns the invocation and the scope of the agent: a session of its own inside the parent's turn.
// Without a parent it contains only the request.
func (t *agentTool) invocation(key string, said conversation.Message, parent *scope.Run, nest *nested.Call) (agent.Invocation, scope.Scope) {
	if parent == nil {
		return agent.Invocation{Step: execution.Step{History: []conversation.Message{said}}}, scope.Scope{}
	}
	in := parent.Scope
	in.Memory, in.Numbers, in.IsSilent = in.Memory.Fork(t.agent.Name()), nil, true
	s := parent.Step
	s.History, s.Prior, s.Routes, s.Tools = []conversation.Message{said}, nil, nil, nil
	s.Assignment = execution.Assignment{Priority: s.Priority, Tags: s.Tags, Timeout: s.Timeout, Ancestors: s.Ancestors}
	if key != "" {
		s.SessionID, s.TurnID, s.OriginTurnID = "sub-"+key, key, ""
	}
	if nest == nil {
		s.Journal, in.Calls = nil, nil
	} else {
		in.Calls = in.Calls.NewLane(nest.Lane, nest.Lanes)
	}
	return agent.Invocation{Step: s, Store: parent.Store, Trace: parent.Trace, Stop: parent.Stop}, in
}

// runToResult runs the agent to its end and returns its result, even if the agent failed. It reports to the tool
// call which remote turns begin and which warnings the guard emits.
func (t *agentTool) runToResult(ctx context.Context, inv agent.Invocation) (done event.TurnResult, err error) {
	for e, failed := range t.agent.Run(ctx, inv) {
		switch p := e.Payload.(type) {
		case event.TurnResult:
			done = p
		case event.SubtaskStarted:
			toolprogress.EmitSubtask(ctx, p)
		case event.Warning:
			toolprogress.EmitWarning(ctx, p)
		}
		err = failed
	}
	return done, err
}
