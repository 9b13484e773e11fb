package spec

import (
	"context"
	"os"
	"time"

	"github.com/troupe-dev/troupe/internal/egress"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/pkg/tool/mcptool"
)

// MCP declares an MCP server whose tools an agent uses: a program to run, or a server at a URL. mcptool.Config
// documents the fields.
type MCP struct {
	Command []string `yaml:"command"`
	Env     []string `yaml:"env"` // NAME, or NAME=value
	Dir     string   `yaml:"dir"` // relative to the working directory of the worker

	URL                 string   `yaml:"url"`
	TokenEnv            string   `yaml:"tokenEnv"` // the environment variable with the token
	AllowInnerAddresses []string `yaml:"allowInnerAddresses"`

	Prefix       string        `yaml:"prefix"`
	Tools        []string      `yaml:"tools"` // names of tools (empty means all that the server has when the agent is created)
	StartTimeout time.Duration `yaml:"startTimeout"`
	CallTimeout  time.Duration `yaml:"callTimeout"`
}

// buildMCPTools returns the tools of an MCP server. The server's program runs from agent.Start to agent.Close. If
// the declaration names no tools, the program is also started briefly here to list them.
func (b *builder) buildMCPTools(ctx context.Context, m MCP, i int) []tool.Tool {
	wrong := func(err error) []tool.Tool {
		b.errorf([]any{"tools", i, "mcp"}, "tools[%d].mcp: %s", i, failure.PlainMessage(err))
		return nil
	}
	networks, err := egress.ParseNetworks(m.AllowInnerAddresses)
	if err != nil {
		return wrong(err)
	}
	c := mcptool.Config{
		Command: m.Command, Env: m.Env, Dir: m.Dir,
		URL: m.URL, AllowInnerAddresses: networks,
		Prefix: m.Prefix, Tools: m.Tools,
		StartTimeout: m.StartTimeout, CallTimeout: m.CallTimeout,
		Log: b.Log,
	}
	if m.TokenEnv != "" {
		token := os.Getenv(m.TokenEnv)
		if token == "" {
			b.errorf([]any{"tools", i, "mcp", "tokenEnv"}, "tools[%d].mcp.tokenEnv: %s is not set in the environment of the worker", i, m.TokenEnv)
			return nil
		}
		c.Token = secret.New(token)
	}
	if len(c.Tools) == 0 {
		if c.Tools, err = mcptool.Names(ctx, c); err != nil { // Names has a timeout of its own
			return wrong(err)
		}
	}
	server, err := mcptool.New(c)
	if err != nil {
		return wrong(err)
	}
	return server.Tools()
}
