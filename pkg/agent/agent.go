// Package agent defines agents. An agent is a named behaviour: a model, instructions, tools and limits. It runs one step and returns a
// result; it holds nothing between steps (RA-1).
//
// An agent runs without a mesh. Package flow composes agents, package local runs sessions with one in a program, and package worker
// serves one in a mesh.
package agent

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/sessionlog"
	"github.com/troupe-dev/troupe/pkg/agent/internal/instructions"
	"github.com/troupe-dev/troupe/pkg/agent/internal/startup"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Agent is a named behaviour that runs steps. It is safe for concurrent use.
type Agent struct {
	config       Config
	instructions instructions.Instructions
	handlers     *hook.Set
	tools        *tool.Set
	state        *ownership.AgentState
	sharedConfig *ownership.Config
	sessionLog   *sessionlog.Log // (nil writes no session log)
	isFlow       bool            // made by NewFlow: its function only runs its children
	broker       *broker.Broker  // asks for the credentials of its sessions in this process

	mu      sync.Mutex
	running bool
	closed  bool // its plugins are closed too
	started startup.Started
}

// New returns the agent that c describes. Modes: agent_validation, and the mode of llm.Catalog.Model if the model cannot be opened. An
// error lists all invalid fields. Then instructions, log, handlers, tools and model are made in this order, and the first error ends
// New (CO-1). Then the handlers of OnAgentReady run.
func New(c Config) (*Agent, error) {
	c.setDefaults()
	if wrong := c.validate(); len(wrong) > 0 {
		return nil, c.newInvalidError(strings.Join(wrong, "; "))
	}
	a := &Agent{config: c, sharedConfig: ownership.NewConfig(c.Name, c.Config), broker: broker.New("")}
	a.state = ownership.NewAgentState(c.Name, c.Owns, func(key string) {
		c.Log.Warn("a key of state that no rule names is taken as the agent's own; declare it in Owns", zap.String("agent", c.Name), zap.String("key", key))
	})
	source := instructions.Source{Agent: c.Name, Text: c.Instructions, From: c.InstructionsFrom, Log: c.Log}
	if c.Run == nil {
		source.Default = DefaultInstructions
	}
	var err error
	if a.instructions, err = instructions.Load(source); err != nil {
		return nil, c.newInvalidError("Instructions: " + failure.PlainMessage(err)).Because(err)
	}
	if a.sessionLog, err = openLog(c, a.instructions.Text()); err != nil {
		return nil, err
	}
	if err := a.build(); err != nil {
		return nil, errors.Join(err, a.sessionLog.Close())
	}
	return a, nil
}

// build creates the agent's handlers, tools and model.
func (a *Agent) build() (err error) {
	c := &a.config
	if a.handlers, err = hook.NewSet(c.Plugins, c.Handlers); err != nil {
		return c.newInvalidError(failure.PlainMessage(err)).Because(err)
	}
	if a.tools, err = tool.NewSet(c.Tools...); err != nil {
		return c.newInvalidError("Tools: " + failure.PlainMessage(err)).Because(err)
	}
	if wrong := c.toolCapabilitiesProblem(a.tools); wrong != "" {
		return c.newInvalidError("ToolCapabilities: " + wrong)
	}
	if c.Model == nil && c.Run == nil {
		if c.Model, err = c.Models.Model(c.ModelName); err != nil {
			return err
		}
	}
	return a.handlers.Ready(describe(a))
}

// NewFlow returns an agent that runs children by a rule instead of a model. run runs them with Agent.Run and yields their events.
// Package flow has the usual rules, and describes what children share. Run and Agents of c must be empty. Modes: as for New, and
// agent_validation when there are no children.
func NewFlow(c Config, children []*Agent, run func(context.Context, Invocation) iter.Seq2[event.Event, error]) (*Agent, error) {
	switch {
	case c.Run != nil || len(c.Agents) > 0:
		return nil, c.newInvalidError("Run, Agents: a flow has its own; leave them out")
	case len(children) == 0:
		return nil, c.newInvalidError("Agents: a flow needs one at least")
	}
	c.Agents, c.Run = children, run
	a, err := New(c)
	if err != nil {
		return nil, err
	}
	a.isFlow = true
	return a, nil
}

// Name returns the name of the agent in the mesh.
func (a *Agent) Name() string { return a.config.Name }

// Description returns one line about the agent.
func (a *Agent) Description() string { return a.config.Description }

// Instructions returns the system prompt as its author wrote it, with its placeholders.
func (a *Agent) Instructions() string { return a.instructions.Text() }

// Capabilities returns the words for what instances of this agent can do and other agents cannot.
func (a *Agent) Capabilities() []string { return slices.Clone(a.config.Capabilities) }

// Version returns the version of the agent. It is independent of the version of the mesh.
func (a *Agent) Version() string { return a.config.Version }

// Capacity returns how many steps an instance runs at once (C-30).
func (a *Agent) Capacity() int { return a.config.Capacity }

// Model returns the full name of the agent's model (empty when it has none).
func (a *Agent) Model() string {
	if a.config.Model == nil {
		return ""
	}
	return a.config.Model.Name()
}

// LLM returns the agent's model (nil when it has none).
func (a *Agent) LLM() llm.Model { return a.config.Model }

// State returns the agent's own state (the AGENT tier), which all of its runs share.
func (a *Agent) State() *ownership.AgentState { return a.state }

// CredentialBroker returns the broker of a session in this process. It asks the user for credentials that tools lack. Its requests can
// be answered until the process ends, even if the session is closed and opened again.
func (a *Agent) CredentialBroker(session string) execution.CredentialBroker {
	return a.broker.ForSession(session)
}

// Config returns the agent's configuration (the SHARED tier), which its worker loads and stores.
func (a *Agent) Config() *ownership.Config { return a.sharedConfig }

// Tools returns the names of the agent's tools, in order.
func (a *Agent) Tools() []string { return a.tools.Names() }

// ToolInfo describes a tool to the orchestrator: its name and its capabilities.
type ToolInfo struct {
	Name         string
	Capabilities []string // sorted (empty if the tool declares none)
}

// Toolbox returns the tools that a step of the agent may use, with their capabilities: its own tools and the tools of the agents that
// it runs, each name once. The orchestrator decides by this list. It omits the tools of an agent that is itself a tool, because they
// are part of that tool.
func (a *Agent) Toolbox() []ToolInfo {
	var all []ToolInfo
	at := map[string]int{}
	var collect func(a *Agent)
	collect = func(a *Agent) {
		for _, name := range a.Tools() {
			i, known := at[name]
			if !known {
				i = len(all)
				at[name], all = i, append(all, ToolInfo{Name: name})
			}
			// New checked each agent's tools. In a flow, two tools with the same name may exceed the limit together.
			all[i].Capabilities = slices.Concat(all[i].Capabilities, a.config.ToolCapabilities[name])
			slices.Sort(all[i].Capabilities)
			all[i].Capabilities = slices.Compact(all[i].Capabilities)
		}
		for _, sub := range a.config.Agents {
			collect(sub)
		}
	}
	collect(a)
	return all
}

// Effect returns the strictest effect of all tools of the agent and of the agents that it runs. Without tools the effect is read. For
// an agent with its own Run function it is at least idempotent.
func (a *Agent) Effect() execution.Effect {
	order := []execution.Effect{execution.Read, execution.Idempotent, execution.AtMostOnce}
	strictest := 0
	if a.config.Run != nil && len(a.config.Agents) == 0 {
		strictest = 1
	}
	for _, t := range a.tools.Tools() {
		strictest = max(strictest, slices.Index(order, tool.EffectOf(t)))
	}
	for _, sub := range a.config.Agents {
		strictest = max(strictest, slices.Index(order, sub.Effect()))
	}
	return order[strictest]
}
