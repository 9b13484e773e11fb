// Package app is the composition root of the worker that runs agents declared in YAML. It creates the agent, and
// package worker serves it.
package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/sessionlog"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/anthropic"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/pkg/llm/gemini"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

// Config has all settings of the worker. The tags define flags, environment variables, defaults and help texts.
type Config struct {
	Agents string `help:"Folder with the YAML files that declare agents." default:"agents/research-assistant" env:"TROUPE_AGENTS" type:"path"`
	Agent  string `help:"Agent to run. May be left out when the folder declares one." env:"TROUPE_AGENT" placeholder:"NAME"`
	Docs   string `help:"Folder for search_documents, in place of the declared one." env:"TROUPE_DOCS" placeholder:"DIR"`

	AgentLog string `name:"agent-log" help:"Folder for logs of the turns, for development only: it slows turns down." env:"TROUPE_AGENT_LOG" placeholder:"DIR"`

	Worker worker.Config `embed:""`
}

// Validate returns an error that names the first invalid setting.
func (c *Config) Validate() error { return c.Worker.Validate() }

// New creates the worker of the configured agent, with open ports. If files is nil, it reads the configured
// folder. The error lists all problems of the declaration, each with file and line. ctx bounds the requests that
// ask MCP servers for their tools.
func New(ctx context.Context, t *telemetry.Telemetry, cfg Config, files fs.FS) (*worker.Worker, error) {
	if files == nil {
		if _, err := os.Stat(cfg.Agents); err != nil {
			return nil, fmt.Errorf("--agents: %w", err)
		}
		files = os.DirFS(cfg.Agents)
	}
	made, err := build(ctx, t.Log, cfg, files, providers())
	if err != nil {
		return nil, err
	}
	return worker.New(t, cfg.Worker, made)
}

// BuildAgent creates the configured agent without a worker. If standIn is set, it replaces every model that the
// agent declares.
func BuildAgent(ctx context.Context, log *zap.Logger, cfg Config, files fs.FS, standIn llm.Model) (*agent.Agent, error) {
	all := providers()
	for i := range all {
		if standIn != nil {
			all[i].Open = func(string) (llm.Model, error) { return standIn, nil }
		}
	}
	return build(ctx, log, cfg, files, all)
}

func providers() []llm.Provider {
	return append(openai.Providers(), anthropic.Provider(), gemini.Provider(), extractive.Provider())
}

func build(ctx context.Context, log *zap.Logger, cfg Config, files fs.FS, providers []llm.Provider) (*agent.Agent, error) {
	models, err := llm.NewCatalog(providers...)
	if err != nil {
		return nil, err
	}
	made, err := spec.Build(ctx, files, cfg.Agent, spec.Dependencies{
		Models: models, Tools: builtin.Catalog{Docs: cfg.Docs}, Log: log, SessionLog: cfg.sessionLog(),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.TrimSpace("--agents "+cfg.Agents), err)
	}
	return made, nil
}

// sessionLog returns the log of the agent's turns (nil if they are not logged; CO-56, CO-57).
func (c *Config) sessionLog() *agent.SessionLog {
	if _, set := os.LookupEnv(sessionlog.EnvVariable); c.AgentLog == "" && !set {
		return nil
	}
	return &agent.SessionLog{Folder: c.AgentLog, Lookup: os.LookupEnv}
}

// Names returns the names of the agents that a folder declares, in order. A folder without agents is an
// error.
func Names(files fs.FS) ([]string, error) {
	all, err := spec.Names(files)
	if err == nil && len(all) == 0 {
		err = errors.New("the folder declares no agent; want a document of kind Agent")
	}
	if err != nil {
		return nil, fmt.Errorf("--agents: %w", err)
	}
	return all, nil
}
