// Package agent is a named behaviour: a model, instructions, tools and limits. An agent is
// given a step and makes a result of it; it keeps nothing between steps (RA-1).
//
// An agent runs without a mesh: package worker puts one on the wire.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/sessionlog"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Defaults and limits of a Config.
const (
	DefaultCapacity = 16
	DefaultTimeout  = 2 * time.Minute
	DefaultVersion  = "dev"

	MaxIterations = 1000
	MaxCapacity   = registry.MaxCapacity
)

// FailurePolicy says what becomes of a step whose model fails or that takes too long.
type FailurePolicy string

const (
	// Fail is the default: the step fails.
	Fail FailurePolicy = "fail"
	// Degrade makes a result that says what is missing, with confidence 0, so that the
	// turn goes on (RA-18, RA-20).
	Degrade FailurePolicy = "degrade"
)

// Config describes an agent. It needs a name, and a model or a function.
type Config struct {
	Name        string // a DNS label: a-z, 0-9 and hyphens, at most 63 characters; not "user"
	Description string // one line, for those who choose between agents
	Version     string // empty: DefaultVersion
	// Capabilities are what its instances can do beyond others, such as gpu: words of a-z, 0-9,
	// dot and hyphen, 16 at most. A step of a workflow may need some (OC-16).
	Capabilities []string

	// Instructions are the system prompt, or the path of a file that holds it. With {key} in
	// it the value of a key of the session's state takes its place, which may be missing with
	// {key?}; {artifact.name} is the latest version of an artifact; {session.history} is what
	// the user and the agents said before, as conversation.Transcript has it; {{key}} is left
	// as {key} (AD-30). Empty: DefaultInstructions.
	Instructions string
	// InstructionsFrom is a file, or a folder whose .md and .txt files are put together in the
	// order of their names; it must exist, be UTF-8 and not empty (CO-2, CO-3).
	InstructionsFrom string

	Model     llm.Model
	Models    *llm.Catalog // finds ModelName, if there is no Model (CO-9)
	ModelName string
	// Run is what the agent does instead of asking a model: a flow, a remote agent, code.
	// The text of the last event.Message or event.Answer is its answer (AD-1). What its own
	// event.Messages change of state is stored with the step (AD-18).
	Run    func(context.Context, Invocation) iter.Seq2[event.Event, error]
	Agents []*Agent // that Run runs; started and closed with it

	Tools []tool.Tool
	// ToolCapabilities are what tools of Tools can do, by their names, in words as those of
	// Capabilities. A step of a workflow that needs some gets those tools alone (OC-16).
	ToolCapabilities map[string][]string
	Parallel         bool // the tools of a round run beside each other (C-9)

	Plugins  []hook.Plugin
	Handlers []hook.Handler // run behind those of plugins (CO-4)

	OutputKey string                     // of the session's state, where the answer is stored; empty: nowhere (AD-30)
	Owns      map[string]ownership.Owner // keys of state beyond those of the rules (SO-5)
	// Config makes the agent the owner of a configuration, which all its instances share and all
	// of the mesh may read; it says what becomes of changes that meet others (SO-11). Empty: it
	// has none.
	Config ownership.Protocol
	Log    *zap.Logger // nil: none
	// SessionLog is where the agent writes down what it does, for its developer; its Agent,
	// Model and SystemPrompt are filled in (CO-55 to CO-58). Each turn reads and writes files,
	// so it is not for production. Nil: nothing is written.
	SessionLog *sessionlog.Config

	MaxIterations int           // of one step; 0: loop.DefaultMaxIterations
	MaxFailures   int           // of tools in a row; 0: loop.DefaultMaxFailures
	Capacity      int           // steps at once; 0: DefaultCapacity
	Timeout       time.Duration // of one step; 0: DefaultTimeout
	StartTimeout  time.Duration // of Start (LC-12), for whoever calls it; 0: their default
	StartRetries  int           // how often a Start that failed is tried again (LC-13), for whoever calls it
	AsksUser      bool          // what it says is a question to the user and ends the turn
	OnFailure     FailurePolicy // empty: Fail

	// Guard says what becomes of tools once a turn has read what neither the user nor the author
	// wrote; an agent below has at least that of the one above. Empty: loop.GuardAsk, or with Run
	// that of each agent below (S14).
	Guard loop.Guard
}

// Agent is safe for concurrent use.
type Agent struct {
	config       Config
	instructions instructions
	handlers     *hook.Set
	tools        *tool.Set
	state        *ownership.AgentState
	shared       *ownership.Config
	log          *sessionlog.Log // nil: none
	flow         bool            // its function runs its agents, and does nothing else
	broker       *broker.Broker  // of its sessions in this process

	mu      sync.Mutex
	running bool
	closed  bool           // and its plugins with it
	started []tool.Starter // in order
}

// New returns the agent that c describes. Its errors are of mode agent_validation, or that of
// a model that cannot be opened. Everything that is wrong with plain fields is told at once,
// each by its name; what has to be made is made in this order, and the first that fails ends
// it: instructions, log, handlers, tools, model (CO-1). Then the handlers of OnAgentReady run.
func New(c Config) (*Agent, error) {
	c.Version = cmp.Or(c.Version, DefaultVersion)
	c.MaxIterations = cmp.Or(c.MaxIterations, loop.DefaultMaxIterations)
	c.MaxFailures = cmp.Or(c.MaxFailures, loop.DefaultMaxFailures)
	c.Capacity = cmp.Or(c.Capacity, DefaultCapacity)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.OnFailure = cmp.Or(c.OnFailure, Fail)
	if c.Run == nil { // a function has no say in what the agents that it runs guard, if its author says nothing
		c.Guard = cmp.Or(c.Guard, loop.GuardAsk)
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if wrong := c.check(); len(wrong) > 0 {
		return nil, c.invalid(strings.Join(wrong, "; "))
	}
	a := &Agent{config: c, shared: ownership.NewConfig(c.Name, c.Config), broker: broker.New("")}
	a.state = ownership.NewAgentState(c.Name, c.Owns, func(key string) {
		c.Log.Warn("a key of state that no rule names is taken as the agent's own; declare it in Owns", zap.String("agent", c.Name), zap.String("key", key))
	})
	var err error
	if a.instructions, err = newInstructions(c); err != nil {
		return nil, c.invalid("Instructions: " + failure.Plain(err)).Because(err)
	}
	if a.log, err = openLog(c, a.instructions.text); err != nil {
		return nil, err
	}
	if err := a.build(); err != nil {
		return nil, errors.Join(err, a.closeLog())
	}
	return a, nil
}

// build makes what comes behind the log.
func (a *Agent) build() (err error) {
	c := &a.config
	if a.handlers, err = hook.NewSet(c.Plugins, c.Handlers); err != nil {
		return c.invalid(failure.Plain(err)).Because(err)
	}
	if a.tools, err = tool.NewSet(c.Tools...); err != nil {
		return c.invalid("Tools: " + failure.Plain(err)).Because(err)
	}
	if wrong := a.abilities(); wrong != "" {
		return c.invalid("ToolCapabilities: " + wrong)
	}
	if c.Model == nil && c.Run == nil {
		if c.Model, err = c.Models.Model(c.ModelName); err != nil {
			return err
		}
	}
	return a.handlers.Ready(hook.Agent{Name: c.Name, Description: c.Description, Version: c.Version, Model: a.Model(), Tools: a.Tools()})
}

func (c Config) invalid(what string) *failure.Error {
	return failure.Newf(failure.AgentValidation, "agent.New", "agent %q is not valid: %s", c.Name, what)
}

// check lists what is wrong with a config whose defaults are filled in.
func (c Config) check() []string {
	var wrong []string
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	expect(registry.IsAgent(c.Name), "Name %q: use a-z, 0-9 and hyphens, at most 63 characters, no hyphen at the ends", c.Name)
	expect(c.Name != "user", "Name: an agent cannot be called user; what the user says has that author")
	expect(c.Model != nil || c.Run != nil || c.Models != nil && c.ModelName != "", "Model is missing")
	expect(c.Run == nil || c.Model == nil && c.ModelName == "", "Run: an agent with a function has no model of its own; leave one out")
	expect(c.MaxFailures >= 1, "MaxFailures %d: use 1 or more", c.MaxFailures)
	expect(c.Instructions == "" || c.InstructionsFrom == "", "Instructions: there are InstructionsFrom as well; leave one out")
	expect(len(c.Agents) == 0 || c.Run != nil, "Agents: only Run can run them; use Sequence, Parallel, Repeat or a Run of your own")
	expect(!slices.Contains(c.Agents, nil), "Agents: number %d is nil; leave it out", slices.Index(c.Agents, nil)+1)
	for _, name := range twice(c.Agents, map[string]bool{c.Name: true}) {
		expect(false, "Agents: two are named %q; each name stands for one agent in the tree", name)
	}
	expect(storable(c.OutputKey), "OutputKey %q: it is no key of the session's state; use a name that no rule gives to another owner", c.OutputKey)
	expect(c.MaxIterations >= 1 && c.MaxIterations <= MaxIterations, "MaxIterations %d: use 1 to %d", c.MaxIterations, MaxIterations)
	expect(c.Capacity >= 1 && c.Capacity <= MaxCapacity, "Capacity %d: use 1 to %d", c.Capacity, MaxCapacity)
	expect(c.Timeout > 0, "Timeout %v: use a positive duration", c.Timeout)
	expect(c.StartRetries >= 0, "StartRetries %d: use 0 or more", c.StartRetries)
	expect(c.StartTimeout >= 0, "StartTimeout %v: use a positive duration", c.StartTimeout)
	expect(c.OnFailure == Fail || c.OnFailure == Degrade, "OnFailure %q: use %q or %q", c.OnFailure, Fail, Degrade)
	expect(c.Guard.Known(), "Guard %q: use %q, %q or %q", c.Guard, loop.GuardAsk, loop.GuardStrict, loop.GuardOff)
	expect(c.Config == "" || c.Config.Known(), "Config %q: use %q or %q", c.Config, ownership.Reject, ownership.Merge)
	expect(len(c.Description) <= registry.MaxText, "Description has %d bytes; use %d at most", len(c.Description), registry.MaxText)
	expect(len(c.Version) <= registry.MaxText, "Version has %d bytes; use %d at most", len(c.Version), registry.MaxText)
	_, err := registry.Capabilities(c.Capabilities)
	expect(err == nil, "Capabilities: %v", err)
	return wrong
}

// storable reports whether an answer can be stored under a key; the empty one stores none.
func storable(key string) bool {
	return key == "" || memory.CheckDelta("agent.New", map[string]json.RawMessage{key: nil}) == nil
}

// twice lists the names in a tree of agents that occurred before (AD-2).
func twice(agents []*Agent, seen map[string]bool) []string {
	var all []string
	for _, a := range agents {
		if a == nil {
			continue
		}
		if seen[a.Name()] {
			all = append(all, a.Name())
		}
		seen[a.Name()] = true
		all = append(all, twice(a.config.Agents, seen)...)
	}
	return all
}

// Name is the name under which the mesh knows the agent.
func (a *Agent) Name() string { return a.config.Name }

// Description is one line from the agent's author.
func (a *Agent) Description() string { return a.config.Description }

// Capabilities are what its instances can do beyond others.
func (a *Agent) Capabilities() []string { return slices.Clone(a.config.Capabilities) }

// Version is that of the agent, not of the mesh.
func (a *Agent) Version() string { return a.config.Version }

// Capacity is how many steps an instance takes at once (C-30).
func (a *Agent) Capacity() int { return a.config.Capacity }

// StartTimeout bounds Start; 0 leaves it to the caller.
func (a *Agent) StartTimeout() time.Duration { return a.config.StartTimeout }

// StartRetries is how often a Start that failed is to be tried again.
func (a *Agent) StartRetries() int { return a.config.StartRetries }

// Model is the full name of the agent's model; empty when it has none.
func (a *Agent) Model() string {
	if a.config.Model == nil {
		return ""
	}
	return a.config.Model.Name()
}

// State is the agent's own state (the AGENT tier), which all its runs share.
func (a *Agent) State() *ownership.AgentState { return a.state }

// CredentialBroker returns what asks for the credentials that tools lack, in a session of this process. What is asked for
// can be answered until the process ends, also when the session is closed and opened again.
func (a *Agent) CredentialBroker(session string) execution.CredentialBroker {
	return a.broker.For(session)
}

// Config is the agent's configuration (the SHARED tier), which its worker loads and stores.
func (a *Agent) Config() *ownership.Config { return a.shared }

// Tools are the names of the agent's tools, in order.
func (a *Agent) Tools() []string { return a.tools.Names() }

// Start starts the tools that own resources, in order, and then the agents that it runs. When
// one fails, those before it are closed again, and the error names the tool. An agent that is
// started stays as it is.
func (a *Agent) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return nil
	}
	if a.log == nil { // it was closed
		var err error
		if a.log, err = openLog(a.config, a.instructions.text); err != nil {
			return err
		}
	}
	for _, t := range a.tools.Tools() {
		s, ok := t.(tool.Starter)
		if !ok {
			continue
		}
		if err := s.Start(ctx); err != nil {
			failed := failure.Newf(failure.ResourceTool, "agent.Start",
				"tool %s of agent %s did not start: %s", t.Spec().Name, a.Name(), failure.Plain(err))
			return failed.Because(errors.Join(err, a.closeAll()))
		}
		a.started = append(a.started, s)
	}
	for _, sub := range a.config.Agents {
		if err := sub.Start(ctx); err != nil {
			return errors.Join(err, a.closeAll())
		}
	}
	a.running, a.closed = true, false
	return nil
}

// Close closes what Start started, in reverse order, all of it even when one fails, then what
// plugins took, and forgets the agent's state (SO-9). It may be called at any time and more
// than once; the caller sees to it that no step is running.
func (a *Agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := !a.closed
	a.running, a.closed = false, true
	err := errors.Join(a.closeAll(), a.closeLog())
	a.state.Clear()
	if !used {
		return err
	}
	for _, p := range slices.Backward(a.handlers.Plugins()) {
		if p.Close != nil {
			err = errors.Join(err, p.Close())
		}
	}
	return err
}

func (a *Agent) closeLog() error {
	if a.log == nil {
		return nil
	}
	log := a.log
	a.log = nil
	return log.Close()
}

func (a *Agent) closeAll() error {
	var failed []error
	for _, sub := range slices.Backward(a.config.Agents) {
		failed = append(failed, sub.Close())
	}
	for _, s := range slices.Backward(a.started) {
		failed = append(failed, s.Close())
	}
	a.started = nil
	return errors.Join(failed...)
}
