// Package app is the composition root of the worker that runs agents declared in YAML: it
// makes the agent, and package worker serves it.
package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/pkg/telemetry"
	"github.com/troupe-dev/troupe/pkg/worker"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

// Config is every setting of the worker. The tags are the flags, the environment variables,
// the defaults and the help text at once.
type Config struct {
	Agents string `help:"Folder with the YAML files that declare agents." default:"agents/research-assistant" env:"TROUPE_AGENTS" type:"path"`
	Agent  string `help:"Agent to run. May be left out when the folder declares one." env:"TROUPE_AGENT" placeholder:"NAME"`
	Docs   string `help:"Folder for search_documents, in place of the declared one." env:"TROUPE_DOCS" placeholder:"DIR"`

	Worker worker.Config `embed:""`
}

// Validate names the first setting that cannot be.
func (c *Config) Validate() error { return c.Worker.Validate() }

// New makes the worker of the configured agent, with its ports open. A nil files means the
// folder of the configuration. Everything that is wrong with the declaration is in the
// error, each with file and line.
func New(t *telemetry.Telemetry, cfg Config, files fs.FS) (*worker.Worker, error) {
	if files == nil {
		if _, err := os.Stat(cfg.Agents); err != nil {
			return nil, fmt.Errorf("--agents: %w", err)
		}
		files = os.DirFS(cfg.Agents)
	}
	models, err := llm.NewCatalog(extractive.Provider())
	if err != nil {
		return nil, err
	}
	made, err := build(files, cfg, models)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.TrimSpace("--agents "+cfg.Agents), err)
	}
	return worker.New(t, cfg.Worker, made)
}

func build(files fs.FS, cfg Config, models *llm.Catalog) (*agent.Agent, error) {
	return spec.Build(files, cfg.Agent, models, builtin.Catalog{Docs: cfg.Docs})
}

// Names are those of the agents that a folder declares, in order. A folder that declares
// none is an error.
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
