package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// MaxDepth is how deep agents may be tools of each other.
const MaxDepth = 4

// AsToolConfig is what a model is told of an agent that is a tool.
type AsToolConfig struct {
	Name        string // empty: that of the agent
	Description string // empty: that of the agent
}

// AsTool makes a tool of an agent (AD-29). The model that calls it says what it wants in one
// text, which begins a session of its own: the agent sees nothing of the conversation above.
// It reads the state of the session as it is, and what it changes is forgotten with it. What
// it says last is the result; a question to the user becomes one of the agent above, and calls
// that wait become its calls that wait: a person who stops one of these stops the whole turn,
// and not only the agent below, as a handler of that does. Its events are not told above, but for
// the turns of remote agents that begin below it, and what the guard did; what its models consume
// counts there. What the model above has read of others counts as read below, and the other way round.
//
// Its model calls and tool calls are in the journal of the step, under keys that begin from
// that of the call: an agent above that lost its worker goes on in the middle of the one
// below. So the effect of the tool is the strictest of its tools and of the agents that it
// runs, read when there are none, and idempotent for an agent with a Run of its own. Wrapped
// into another tool, also by tool.With, an agent runs without a journal: then the effect of
// the wrapping tool decides what becomes of it.
//
// The tool is started and closed with the agent that has it. More than MaxDepth agents inside
// each other are agent_logic, told to the model. Modes: agent_validation, as of tool.Func.
func AsTool(a *Agent, c AsToolConfig) (tool.Tool, error) {
	t := &agentTool{agent: a, effect: effectOf(a)}
	type request struct {
		Request string `json:"request" jsonschema:"what you want of it, with all that it has to know"`
	}
	inner, err := tool.Func(cmp.Or(c.Name, a.Name()), cmp.Or(c.Description, a.Description(), "Asks the agent "+a.Name()+"."),
		func(ctx context.Context, in request) (string, error) { return t.ask(ctx, in.Request) })
	t.Tool = inner
	return t, err
}

// agentTool is an agent that is a tool.
type agentTool struct {
	tool.Tool // checks the arguments, and calls ask
	agent     *Agent
	effect    execution.Effect
}

// Effect implements tool.Effector.
func (t *agentTool) Effect() execution.Effect { return t.effect }

// Start implements tool.Starter.
func (t *agentTool) Start(ctx context.Context) error { return t.agent.Start(ctx) }

// Close implements tool.Starter.
func (t *agentTool) Close() error { return t.agent.Close() }

// nestKey finds the *loop.Nest of a call.
type nestKey struct{}

// CallIn implements loop.Nested.
func (t *agentTool) CallIn(ctx context.Context, args json.RawMessage, n *loop.Nest) (tool.Result, error) {
	return t.Call(context.WithValue(ctx, nestKey{}, n), args)
}

// Skip implements loop.Nested.
func (t *agentTool) Skip(ctx context.Context, n *loop.Nest) {
	if above, ok := ctx.Value(turnKey{}).(*turn); ok {
		above.inv.count.reach(n.Last)
		above.inner.add(n.Usage)
	}
}

// depthKey finds how many agents are tools above.
type depthKey struct{}

// ask runs the agent once.
func (t *agentTool) ask(ctx context.Context, request string) (string, error) {
	above, _ := ctx.Value(turnKey{}).(*turn)
	nest, _ := ctx.Value(nestKey{}).(*loop.Nest)
	said := conversation.User(request)
	said.Untrusted = hook.InTool(ctx).Untrusted // a model wrote it that has read that
	inv := t.invocation(tool.IdempotencyKey(ctx), said, above, nest)
	depth, _ := ctx.Value(depthKey{}).(int)
	if depth >= MaxDepth {
		return "", failure.Newf(failure.AgentLogic, "agent.AsTool",
			"%s: at most %d agents may be tools inside each other; do it without asking another agent", inv.path(t.agent), MaxDepth)
	}
	ctx = context.WithValue(context.WithValue(ctx, depthKey{}, depth+1), nestKey{}, nil)
	done, err := t.agent.collect(ctx, inv)
	tool.Quotes(ctx, done.Result.Untrusted)
	if above != nil {
		above.inner.add(done.Result.Usage)
	}
	if nest != nil {
		nest.Usage = done.Result.Usage
		if above != nil {
			nest.Last = inv.count.join()
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

// invocation is a session of its own inside a turn; without one it is all that there is.
func (t *agentTool) invocation(key string, said conversation.Message, above *turn, nest *loop.Nest) Invocation {
	if above == nil {
		return Invocation{Step: execution.Step{History: []conversation.Message{said}}}
	}
	inv := above.inv
	inv.branch = inv.path(above.agent)
	inv.memory = inv.memory.Fork(t.agent.Name())
	inv.guard = above.agent.config.Guard.Stricter(inv.guard)
	inv.numbers, inv.MaxIterations, inv.apart = nil, 0, true
	s := &inv.Step
	s.History, s.Prior, s.Routes, s.Tools = []conversation.Message{said}, nil, nil, nil
	s.Asked = execution.Asked{Priority: s.Priority, Tags: s.Tags, Timeout: s.Timeout}
	if key != "" {
		s.SessionID, s.TurnID, s.Origin = "sub-"+key, key, ""
	}
	if nest == nil {
		s.Journal, inv.count = nil, nil
	} else {
		inv.count = inv.count.split(nest.Lane, nest.Lanes)
	}
	return inv
}

// collect runs the agent to its end, and returns its result also when it failed. The call that
// it is for tells which turns of their own begin.
func (a *Agent) collect(ctx context.Context, inv Invocation) (done event.TurnResult, err error) {
	for e, failed := range a.Run(ctx, inv) {
		switch p := e.Payload.(type) {
		case event.TurnResult:
			done = p
		case event.SubtaskStarted:
			loop.Began(ctx, p)
		case event.Warning:
			loop.Warned(ctx, p)
		}
		err = failed
	}
	return done, err
}

// effectOf is the strictest effect of what an agent does.
func effectOf(a *Agent) execution.Effect {
	order := []execution.Effect{execution.Read, execution.Idempotent, execution.AtMostOnce}
	strictest := 0
	if a.config.Run != nil && len(a.config.Agents) == 0 {
		strictest = 1
	}
	for _, t := range a.tools.Tools() {
		strictest = max(strictest, slices.Index(order, tool.EffectOf(t)))
	}
	for _, sub := range a.config.Agents {
		strictest = max(strictest, slices.Index(order, effectOf(sub)))
	}
	return order[strictest]
}

// turnKey finds the *turn that runs.
type turnKey struct{}

// inner is what the models of agents consumed that are tools of a turn. Tools run beside each
// other.
type inner struct {
	mu    sync.Mutex
	usage execution.Usage
}

func (i *inner) add(u execution.Usage) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.usage = i.usage.Add(u)
}

// take returns what came since the last time.
func (i *inner) take() execution.Usage {
	i.mu.Lock()
	defer i.mu.Unlock()
	u := i.usage
	i.usage = execution.Usage{}
	return u
}
