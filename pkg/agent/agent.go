// Package agent is a named behaviour: a model, instructions, tools and limits. An agent is
// given a step and makes a result of it; it keeps nothing between steps (RA-1).
//
// An agent runs without a mesh: package worker puts one on the wire.
package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/loop"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Defaults and limits of a Config.
const (
	DefaultCapacity = 16
	DefaultTimeout  = 2 * time.Minute
	DefaultVersion  = "dev"

	MaxIterations = 1000
	MaxCapacity   = 10_000
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

// Config describes an agent.
type Config struct {
	Name          string // a DNS label: a-z, 0-9 and hyphens, at most 63 characters
	Description   string // one line, for those who choose between agents
	Version       string // empty: DefaultVersion
	Instructions  string // the system prompt
	Model         llm.Model
	Tools         []tool.Tool
	MaxIterations int           // of one step; 0: loop.DefaultMaxIterations
	Capacity      int           // steps at once; 0: DefaultCapacity
	Timeout       time.Duration // of one step; 0: DefaultTimeout
	StartTimeout  time.Duration // of Start (LC-12), for whoever calls it; 0: their default
	StartRetries  int           // how often a Start that failed is tried again (LC-13), for whoever calls it
	AsksUser      bool          // what it says is a question to the user and ends the turn
	OnFailure     FailurePolicy // empty: Fail
}

// Agent is safe for concurrent use.
type Agent struct {
	config Config
	tools  *tool.Set

	mu      sync.Mutex
	running bool
	started []tool.Starter // in order
}

var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// New returns the agent that c describes. Everything that is wrong with c is in the error,
// of mode agent_validation, each with the name of its field.
func New(c Config) (*Agent, error) {
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	if c.MaxIterations == 0 {
		c.MaxIterations = loop.DefaultMaxIterations
	}
	if c.Capacity == 0 {
		c.Capacity = DefaultCapacity
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.OnFailure == "" {
		c.OnFailure = Fail
	}
	wrong := c.check()
	tools, err := tool.NewSet(c.Tools...)
	if e, ok := errors.AsType[*failure.Error](err); ok {
		wrong = append(wrong, "Tools: "+e.Message)
	}
	if len(wrong) > 0 {
		return nil, failure.Newf(failure.AgentValidation, "agent.New",
			"agent %q is not valid: %s", c.Name, strings.Join(wrong, "; "))
	}
	return &Agent{config: c, tools: tools}, nil
}

// check lists what is wrong with a config whose defaults are filled in.
func (c Config) check() []string {
	var wrong []string
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	expect(namePattern.MatchString(c.Name), "Name %q: use a-z, 0-9 and hyphens, at most 63 characters, no hyphen at the ends", c.Name)
	expect(c.Model != nil, "Model is missing")
	expect(c.MaxIterations >= 1 && c.MaxIterations <= MaxIterations, "MaxIterations %d: use 1 to %d", c.MaxIterations, MaxIterations)
	expect(c.Capacity >= 1 && c.Capacity <= MaxCapacity, "Capacity %d: use 1 to %d", c.Capacity, MaxCapacity)
	expect(c.Timeout > 0, "Timeout %v: use a positive duration", c.Timeout)
	expect(c.StartRetries >= 0, "StartRetries %d: use 0 or more", c.StartRetries)
	expect(c.StartTimeout >= 0, "StartTimeout %v: use a positive duration", c.StartTimeout)
	expect(c.OnFailure == Fail || c.OnFailure == Degrade, "OnFailure %q: use %q or %q", c.OnFailure, Fail, Degrade)
	return wrong
}

// Name is the name under which the mesh knows the agent.
func (a *Agent) Name() string { return a.config.Name }

// Description is one line from the agent's author.
func (a *Agent) Description() string { return a.config.Description }

// Version is that of the agent, not of the mesh.
func (a *Agent) Version() string { return a.config.Version }

// Capacity is how many steps an instance takes at once (C-30).
func (a *Agent) Capacity() int { return a.config.Capacity }

// StartTimeout bounds Start; 0 leaves it to the caller.
func (a *Agent) StartTimeout() time.Duration { return a.config.StartTimeout }

// StartRetries is how often a Start that failed is to be tried again.
func (a *Agent) StartRetries() int { return a.config.StartRetries }

// Model is the full name of the agent's model.
func (a *Agent) Model() string { return a.config.Model.Name() }

// Tools are the names of the agent's tools, in order.
func (a *Agent) Tools() []string { return a.tools.Names() }

// Start starts the tools that own resources, in order. When one fails, those before it are
// closed again, and the error names the tool. An agent that is started stays as it is.
func (a *Agent) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return nil
	}
	for _, t := range a.tools.Tools() {
		s, ok := t.(tool.Starter)
		if !ok {
			continue
		}
		if err := s.Start(ctx); err != nil {
			failed := failure.Newf(failure.ResourceTool, "agent.Start",
				"tool %s of agent %s did not start: %s", t.Spec().Name, a.Name(), failure.Plain(err))
			return failed.Because(errors.Join(err, a.closeTools()))
		}
		a.started = append(a.started, s)
	}
	a.running = true
	return nil
}

// Close closes what Start started, in reverse order, all of it even when one fails. It may
// be called at any time and more than once; the caller sees to it that no step is running.
func (a *Agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = false
	return a.closeTools()
}

func (a *Agent) closeTools() error {
	var failed []error
	for _, s := range slices.Backward(a.started) {
		failed = append(failed, s.Close())
	}
	a.started = nil
	return errors.Join(failed...)
}
