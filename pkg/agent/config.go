package agent

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/agent/internal/planning"
	"github.com/troupe-dev/troupe/pkg/agent/internal/result"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Defaults and limits of the fields of a Config.
const (
	DefaultCapacity = 16
	DefaultTimeout  = 2 * time.Minute
	DefaultVersion  = "dev"

	// DefaultInstructions are the instructions of an agent whose Config has none (CO-3).
	DefaultInstructions = "You are a helpful assistant. Answer briefly and truthfully. Use the tools that you have, and say so when you do not know."

	MaxIterations = 1000
	MaxCapacity   = registry.MaxCapacity
)

// AddTask is the name of the tool that adds a task to the plan of a step (ADR 0023). While a step plans, its model
// gets this tool in addition to the agent's own.
const AddTask = planning.AddTask

// FailurePolicy decides what happens to a step whose model fails or that exceeds its timeout.
type FailurePolicy string

const (
	// Fail is the default: the step fails.
	Fail FailurePolicy = "fail"
	// Degrade completes the step with a result that explains what is missing. Its confidence is 0, and the turn continues (RA-18, RA-20).
	Degrade FailurePolicy = "degrade"
)

// Config describes an agent. It needs a name, and a model or a function.
type Config struct {
	Name        string // a DNS label: a-z, 0-9 and hyphens, at most 63 characters; not "user"
	Description string // one line that helps to choose between agents
	Version     string // (empty means DefaultVersion)
	// Capabilities are words for what instances of this agent can do and other agents cannot, such as gpu. There
	// are at most 16 words of a-z, 0-9, dot and hyphen. A step of a workflow may require some of them (OC-16).
	Capabilities []string

	// Instructions are the system prompt, or the path of a file that holds it. {key} is replaced by the value of a
	// key of the session's state, and {key?} by an empty text if the key does not exist. {artifact.name} is the
	// latest version of an artifact. {session.history} is the earlier conversation in the form of
	// conversation.Transcript. {{key}} becomes {key} (AD-30). Empty means DefaultInstructions.
	Instructions string
	// InstructionsFrom is a file, or a folder whose .md and .txt files are joined in the order of their names. It must exist,
	// be UTF-8 and not be empty (CO-2, CO-3).
	InstructionsFrom string

	Model     llm.Model
	Models    *llm.Catalog // finds ModelName if Model is nil (CO-9)
	ModelName string
	// Run replaces the model: it can be a flow, a remote agent or any code. The text of its last event.Message or
	// event.Answer is the agent's answer (AD-1). The state in its own event.Messages is stored with the step (AD-18).
	Run    func(context.Context, Invocation) iter.Seq2[event.Event, error]
	Agents []*Agent // agents that Run runs; they are started and closed with this agent

	Tools []tool.Tool
	// ToolCapabilities holds the capabilities of Tools by the name of the tool. The words have the same form as in
	// Capabilities. If a step of a workflow requires some, it gets only the tools that have them (OC-16).
	ToolCapabilities map[string][]string
	Parallel         bool // the tools of a round run concurrently (C-9)

	Plugins  []hook.Plugin
	Handlers []hook.Handler // run after the handlers of plugins (CO-4)

	OutputKey string                     // key of the session's state that gets the answer (empty stores none, AD-30)
	Owns      map[string]ownership.Owner // owners of state keys, in addition to the built-in ownership rules (SO-5)
	// Config makes the agent the owner of a shared configuration. All instances of the agent share it, and the
	// whole mesh may read it. The protocol decides how conflicting changes are resolved (SO-11, empty means no configuration).
	Config ownership.Protocol
	Log    *zap.Logger // (nil logs nothing)
	// SessionLog writes each turn to files for the agent's developer (CO-55 to CO-58, nil writes nothing). It is
	// not for production, because each turn reads and writes files.
	SessionLog *SessionLog

	MaxIterations int           // model calls of one step (0 means loop.DefaultMaxIterations)
	MaxFailures   int           // consecutive tool failures (0 means loop.DefaultMaxFailures)
	Capacity      int           // steps at once (0 means DefaultCapacity)
	Timeout       time.Duration // bounds one step (0 means DefaultTimeout)
	Lifecycle     Lifecycle
	AsksUser      bool          // the agent's text is a question to the user and ends the turn
	OnFailure     FailurePolicy // (empty means Fail)

	// Guard decides what happens to tool calls after a turn has read untrusted text, which neither the user nor
	// the author wrote (guarantee S14). A child agent has at least the guard of its parent. Empty means tool.GuardAsk. For
	// an agent with Run it means the guard of each child.
	Guard tool.Guard
}

// setDefaults sets the default values of empty fields.
func (c *Config) setDefaults() {
	c.Version = cmp.Or(c.Version, DefaultVersion)
	c.MaxIterations = cmp.Or(c.MaxIterations, loop.DefaultMaxIterations)
	c.MaxFailures = cmp.Or(c.MaxFailures, loop.DefaultMaxFailures)
	c.Capacity = cmp.Or(c.Capacity, DefaultCapacity)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.OnFailure = cmp.Or(c.OnFailure, Fail)
	if c.Run == nil { // a function leaves the guard to its children
		c.Guard = cmp.Or(c.Guard, tool.GuardAsk)
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
}

func (c Config) newInvalidError(what string) *failure.Error {
	return failure.Newf(failure.AgentValidation, "agent.New", "agent %q is not valid: %s", c.Name, what)
}

// validate returns a description of each invalid field. The defaults must be set already.
func (c Config) validate() []string {
	var wrong []string
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	expect(registry.IsAgentName(c.Name), "Name %q: use a-z, 0-9 and hyphens, at most 63 characters, no hyphen at the ends", c.Name)
	expect(c.Name != "user", "Name: an agent cannot be called user; what the user says has that author")
	expect(c.Model != nil || c.Run != nil || c.Models != nil && c.ModelName != "", "Model is missing")
	expect(c.Run == nil || c.Model == nil && c.ModelName == "", "Run: an agent with a function has no model of its own; leave one out")
	expect(c.MaxFailures >= 1, "MaxFailures %d: use 1 or more", c.MaxFailures)
	expect(c.Instructions == "" || c.InstructionsFrom == "", "Instructions: there are InstructionsFrom as well; leave one out")
	expect(len(c.Agents) == 0 || c.Run != nil, "Agents: only Run can run them; use package flow or a Run of your own")
	expect(!slices.Contains(c.Agents, nil), "Agents: number %d is nil; leave it out", slices.Index(c.Agents, nil)+1)
	for _, name := range repeatedNames(c.Agents, map[string]bool{c.Name: true}) {
		expect(false, "Agents: two are named %q; each name stands for one agent in the tree", name)
	}
	expect(c.OutputKey == "" || result.IsStateKey(c.OutputKey),
		"OutputKey %q: it is no key of the session's state; use a name that no rule gives to another owner", c.OutputKey)
	expect(c.MaxIterations >= 1 && c.MaxIterations <= MaxIterations, "MaxIterations %d: use 1 to %d", c.MaxIterations, MaxIterations)
	expect(c.Capacity >= 1 && c.Capacity <= MaxCapacity, "Capacity %d: use 1 to %d", c.Capacity, MaxCapacity)
	expect(c.Timeout > 0, "Timeout %v: use a positive duration", c.Timeout)
	expect(c.Lifecycle.Retries >= 0, "Lifecycle.Retries %d: use 0 or more", c.Lifecycle.Retries)
	expect(c.Lifecycle.Timeout >= 0, "Lifecycle.Timeout %v: use a positive duration", c.Lifecycle.Timeout)
	expect(c.OnFailure == Fail || c.OnFailure == Degrade, "OnFailure %q: use %q or %q", c.OnFailure, Fail, Degrade)
	expect(c.Guard.IsKnown(), "Guard %q: use %q, %q or %q", c.Guard, tool.GuardAsk, tool.GuardStrict, tool.GuardOff)
	expect(c.Config == "" || c.Config.IsValid(), "Config %q: use %q or %q", c.Config, ownership.Reject, ownership.Merge)
	expect(len(c.Description) <= registry.MaxTextBytes, "Description has %d bytes; use %d at most", len(c.Description), registry.MaxTextBytes)
	expect(len(c.Version) <= registry.MaxTextBytes, "Version has %d bytes; use %d at most", len(c.Version), registry.MaxTextBytes)
	_, err := registry.MergeCapabilities(c.Capabilities)
	expect(err == nil, "Capabilities: %v", err)
	return wrong
}

// repeatedNames returns the names that occur more than once in a tree of agents (AD-2).
func repeatedNames(agents []*Agent, seen map[string]bool) []string {
	var all []string
	for _, a := range agents {
		if a == nil {
			continue
		}
		if seen[a.Name()] {
			all = append(all, a.Name())
		}
		seen[a.Name()] = true
		all = append(all, repeatedNames(a.config.Agents, seen)...)
	}
	return all
}

// toolCapabilitiesProblem describes what is wrong with ToolCapabilities (empty if nothing is).
func (c Config) toolCapabilitiesProblem(tools *tool.Set) string {
	for _, name := range slices.Sorted(maps.Keys(c.ToolCapabilities)) {
		if _, ok := tools.Find(name); !ok {
			return fmt.Sprintf("there is no tool %q; there are %s", name, strings.Join(tools.Names(), ", "))
		}
		if _, err := registry.MergeCapabilities(c.ToolCapabilities[name]); err != nil {
			return fmt.Sprintf("%s: %v", name, err)
		}
	}
	return ""
}
