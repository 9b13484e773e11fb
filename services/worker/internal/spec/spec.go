// Package spec creates agents from YAML documents of kind Agent.
package spec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
)

// Agent is the spec of a document of kind Agent. Omitted fields have the defaults of agent.Config.
type Agent struct {
	Model        yaml.Node           `yaml:"model"`       // a name with its prefix, such as builtin/extractive; a Model; or a list of these
	Temperature  *float64            `yaml:"temperature"` // temperature of its models, 0 to 2
	Description  string              `yaml:"description"`
	Version      string              `yaml:"version"`
	Capabilities []string            `yaml:"capabilities"` // capabilities of its instances, which steps may need
	Instructions Instructions        `yaml:"instructions"`
	Tools        []Tool              `yaml:"tools"`
	Plugins      []yaml.Node         `yaml:"plugins"` // each is a name, or one name with its settings
	AsksUser     bool                `yaml:"asksUser"`
	Guard        tool.Guard          `yaml:"guard"` // guard of its tools after a turn has read untrusted text: ask, strict or off
	OnFailure    agent.FailurePolicy `yaml:"onFailure"`
	Config       Config              `yaml:"config"`
	Limits       Limits              `yaml:"limits"`
	Lifecycle    Lifecycle           `yaml:"lifecycle"`
}

// Instructions is the system prompt. Exactly one field is set.
type Instructions struct {
	Text string `yaml:"text"`
	File string `yaml:"file"` // relative to the folder of the manifest
}

// Config declares how instances of the agent share a configuration (SO-11).
type Config struct {
	Protocol ownership.Protocol `yaml:"protocol"` // how to handle conflicting changes: reject or merge
}

// Limits declares the limits of one instance.
type Limits struct {
	MaxIterations int           `yaml:"maxIterations"` // limit of one step
	Capacity      int           `yaml:"capacity"`      // how many steps run at once
	Timeout       time.Duration `yaml:"timeout"`       // limit of one step
}

// Lifecycle configures the startup of an instance.
type Lifecycle struct {
	Timeout        time.Duration `yaml:"timeout"`        // bounds the startup with all its tries (LC-12)
	RetryOnFailure bool          `yaml:"retryOnFailure"` // retry a failed startup (LC-13)
	MaxRetries     int           `yaml:"maxRetries"`     // how often to retry (0 means 3)
	CleanupOnError *bool         `yaml:"cleanupOnError"` // false keeps a failed instance until Shutdown (LC-11, nil means true)
	// StatePersistence is memory, or agent to store no changes of the shared configuration at the end (LC-24, empty means memory).
	StatePersistence string `yaml:"statePersistence"`
}

// maxRetries returns how often a failed startup is retried.
func (l Lifecycle) maxRetries() int {
	if !l.RetryOnFailure {
		return 0
	}
	return cmp.Or(l.MaxRetries, lifecycle.DefaultMaxRetries)
}

// Names returns the names of the agents that a folder declares, in order.
func Names(folder fs.FS) ([]string, error) {
	docs, err := manifest.Load(folder)
	if err != nil {
		return nil, err
	}
	return agentNames(docs), nil
}

func agentNames(docs []manifest.Document) []string {
	var all []string
	for _, d := range manifest.Select(docs, manifest.KindAgent) {
		all = append(all, d.Name)
	}
	return all
}

// Dependencies has what Build needs to create agents.
type Dependencies struct {
	Models     *llm.Catalog
	Tools      builtin.Catalog
	Log        *zap.Logger       // (nil disables logging)
	SessionLog *agent.SessionLog // where agents log their turns (nil disables that)
}

// Build creates the agent with the given name (empty means the only agent of the folder). The error lists all
// problems of the folder and the agent, each with file and line. The tools are created but not started.
// agent.Start acquires their resources. Build contacts MCP servers only if the declaration does not name their
// tools. ctx bounds these requests.
func Build(ctx context.Context, folder fs.FS, name string, m Dependencies) (*agent.Agent, error) {
	docs, err := manifest.Load(folder)
	if err != nil {
		return nil, err
	}
	doc, err := findAgent(docs, name)
	if err != nil {
		return nil, err
	}
	if m.Log == nil {
		m.Log = zap.NewNop()
	}
	b := &builder{Dependencies: m, folder: folder, doc: doc, toolCapabilities: map[string][]string{}}
	return b.build(ctx)
}

func findAgent(docs []manifest.Document, name string) (manifest.Document, error) {
	agents := manifest.Select(docs, manifest.KindAgent)
	if name == "" && len(agents) == 1 {
		return agents[0], nil
	}
	for _, d := range agents {
		if d.Name == name {
			return d, nil
		}
	}
	there := "there are " + strings.Join(agentNames(docs), ", ")
	if len(agents) == 0 {
		there = "the folder declares no agent"
	}
	if near := manifest.Nearest(name, agentNames(docs)); near != "" {
		there = fmt.Sprintf("did you mean %q?", near)
	}
	if name == "" {
		return manifest.Document{}, failure.Newf(failure.UserInvalidInput, "spec.Build", "say which agent to run: %s", there)
	}
	return manifest.Document{}, failure.Newf(failure.NotFound, "spec.Build", "agent %q is not declared: %s", name, there)
}

// builder creates one agent and collects the problems of its declaration.
type builder struct {
	Dependencies
	folder fs.FS
	doc    manifest.Document
	errs   []error

	toolCapabilities map[string][]string // capabilities of tools, by name
}

func (b *builder) errorf(keys []any, format string, args ...any) {
	b.errs = append(b.errs, b.doc.PlaceOf(keys...).Errorf(format, args...))
}

func (b *builder) build(ctx context.Context) (*agent.Agent, error) {
	var s Agent
	if err := b.doc.Decode(&s); err != nil {
		return nil, err
	}
	config := agent.Config{
		Log:           b.Log,
		SessionLog:    b.SessionLog,
		Name:          b.doc.Name,
		Description:   s.Description,
		Version:       s.Version,
		Capabilities:  s.Capabilities,
		Instructions:  b.readInstructions(s.Instructions),
		Model:         b.withTemperature(b.buildModel(s.Model), s.Temperature),
		Tools:         b.buildTools(ctx, s.Tools),
		Plugins:       b.buildPlugins(s.Plugins),
		MaxIterations: s.Limits.MaxIterations,
		Capacity:      s.Limits.Capacity,
		Timeout:       s.Limits.Timeout,
		Lifecycle: agent.Lifecycle{
			Timeout: s.Lifecycle.Timeout, Retries: s.Lifecycle.maxRetries(),
			KeepFailed: s.Lifecycle.CleanupOnError != nil && !*s.Lifecycle.CleanupOnError,
			DropState:  s.Lifecycle.StatePersistence == "agent",
		},
		AsksUser:  s.AsksUser,
		OnFailure: s.OnFailure,
		Guard:     s.Guard,
		Config:    s.Config.Protocol,

		ToolCapabilities: b.toolCapabilities,
	}
	b.checkLimits(s)
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	a, err := agent.New(config)
	if err != nil {
		return nil, b.doc.PlaceOf().Errorf("%s", failure.PlainMessage(err))
	}
	return a, nil
}

// checkLimits checks limits that agent.New would also reject, so that error messages use the YAML names of fields.
func (b *builder) checkLimits(s Agent) {
	if n := s.Limits.MaxIterations; n < 0 || n > agent.MaxIterations {
		b.errorf([]any{"limits", "maxIterations"}, "limits.maxIterations is %d; use 1 to %d, or leave it out for %d", n, agent.MaxIterations,
			loop.DefaultMaxIterations)
	}
	if n := s.Limits.Capacity; n < 0 || n > agent.MaxCapacity {
		b.errorf([]any{"limits", "capacity"}, "limits.capacity is %d; use 1 to %d, or leave it out for %d", n, agent.MaxCapacity, agent.DefaultCapacity)
	}
	if d := s.Limits.Timeout; d < 0 {
		b.errorf([]any{"limits", "timeout"}, "limits.timeout is %s; use a positive duration, or leave it out for %s", d, agent.DefaultTimeout)
	}
	if _, err := registry.MergeCapabilities(s.Capabilities); err != nil {
		b.errorf([]any{"capabilities"}, "capabilities: %v", err)
	}
	if p := s.Config.Protocol; p != "" && !p.IsValid() {
		b.errorf([]any{"config", "protocol"}, "config.protocol is %q; use %s or %s", p, ownership.Reject, ownership.Merge)
	}
	b.checkLifecycle(s.Lifecycle)
	if !s.Guard.IsKnown() {
		b.errorf([]any{"guard"}, "guard is %q; use %s, %s or %s", s.Guard, tool.GuardAsk, tool.GuardStrict, tool.GuardOff)
	}
	if p := s.OnFailure; p != "" && p != agent.Fail && p != agent.Degrade {
		b.errorf([]any{"onFailure"}, "onFailure is %q; use %s or %s", p, agent.Fail, agent.Degrade)
	}
}

func (b *builder) checkLifecycle(l Lifecycle) {
	if d := l.Timeout; d < 0 {
		b.errorf([]any{"lifecycle", "timeout"}, "lifecycle.timeout is %s; use a positive duration, or leave it out for %s", d, lifecycle.DefaultStartupTimeout)
	}
	if n := l.MaxRetries; n < 0 || n > 0 && !l.RetryOnFailure {
		b.errorf([]any{"lifecycle", "maxRetries"}, "lifecycle.maxRetries is %d; use it with retryOnFailure: true, and 1 or more", n)
	}
	if kept := l.StatePersistence; !slices.Contains([]string{"", "memory", "agent"}, kept) {
		b.errorf([]any{"lifecycle", "statePersistence"}, "lifecycle.statePersistence is %q; use memory or agent", kept)
	}
}

func (b *builder) readInstructions(in Instructions) string {
	if in.File == "" {
		return in.Text
	}
	keys := []any{"instructions", "file"}
	if in.Text != "" {
		b.errorf(keys, "instructions: use text or file, not both")
		return ""
	}
	name := path.Clean(in.File)
	if !fs.ValidPath(name) {
		b.errorf(keys, "instructions.file is %q; use a path inside the folder of this file", in.File)
		return ""
	}
	text, err := fs.ReadFile(b.folder, name)
	if err != nil {
		b.errorf(keys, "instructions.file: %s cannot be read from the folder of this file", in.File)
		return ""
	}
	return strings.TrimSpace(string(text))
}
