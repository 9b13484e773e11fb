package spec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Tool declares a builtin tool, the tools of an MCP server, or a client tool. Exactly one of these is set.
type Tool struct {
	Builtin string    `yaml:"builtin"`
	With    yaml.Node `yaml:"with"` // settings of the builtin tool
	MCP     *MCP      `yaml:"mcp"`
	Client  *Client   `yaml:"client"`

	// If these fields are omitted, the defaults of the tool apply (see tool.Scope).
	Untrusted *bool `yaml:"untrusted"` // its results contain text that others wrote
	Egress    *bool `yaml:"egress"`    // it sends its arguments to other parties

	Capabilities []string `yaml:"capabilities"` // what it can do, or what each tool of the server can do, for steps that need it
}

// Client declares a tool that the client of the agent runs (see tool.Client).
type Client struct {
	Name        string    `yaml:"name"`
	Description string    `yaml:"description"`
	Parameters  yaml.Node `yaml:"parameters"` // a JSON Schema of type object (omitted means no parameters)
}

// kindCount returns how many of Builtin, MCP and Client are set.
func (t Tool) kindCount() (n int) {
	for _, is := range []bool{t.Builtin != "" || !t.With.IsZero(), t.MCP != nil, t.Client != nil} {
		if is {
			n++
		}
	}
	return n
}

func (b *builder) buildTools(ctx context.Context, declared []Tool) []tool.Tool {
	var all []tool.Tool
	for i, t := range declared {
		before := len(all)
		switch {
		case t.kindCount() > 1:
			b.errorf([]any{"tools", i}, "tools[%d]: use builtin, mcp or client, and only one of them", i)
		case t.MCP != nil:
			all = append(all, b.buildMCPTools(ctx, *t.MCP, i)...)
		case t.Client != nil:
			all = append(all, b.buildClientTool(*t.Client, i)...)
		default:
			all = append(all, b.buildBuiltinTool(t.Builtin, i)...)
		}
		b.setCapabilities(all[before:], t.Capabilities, i)
		for n := before; n < len(all); n++ {
			all[n] = t.withScope(all[n])
		}
	}
	return all
}

// setCapabilities records the declared capabilities of the tools of one declaration.
func (b *builder) setCapabilities(tools []tool.Tool, capabilities []string, i int) {
	sorted, err := registry.MergeCapabilities(capabilities)
	if err != nil {
		b.errorf([]any{"tools", i, "capabilities"}, "tools[%d].capabilities: %v", i, err)
	}
	for _, t := range tools {
		if len(sorted) > 0 {
			b.toolCapabilities[t.Spec().Name] = sorted
		}
	}
}

// withScope returns a tool with the declared scope. If the results of a server are declared as trusted, its tool
// descriptions are trusted as well.
func (t Tool) withScope(made tool.Tool) tool.Tool {
	if t.Untrusted == nil && t.Egress == nil {
		return made
	}
	scope, _ := tool.ScopeOf(made)
	if t.Untrusted != nil {
		scope.Untrusted = *t.Untrusted
	}
	if t.Egress != nil {
		scope.Egress = *t.Egress
	}
	if !scope.Untrusted {
		scope.Party = ""
	}
	return tool.WithScope(scope, made)
}

// buildBuiltinTool creates a builtin tool. If that fails, it records the problem.
func (b *builder) buildBuiltinTool(name string, i int) []tool.Tool {
	known := b.Tools.Names()
	switch {
	case name == "":
		b.errorf([]any{"tools", i}, "tools[%d].builtin is missing; use mcp for the tools of a server, client for one of the "+
			"client, or one of %s", i, strings.Join(known, ", "))
		return nil
	case !slices.Contains(known, name):
		there := "there are " + strings.Join(known, ", ")
		if near := manifest.Nearest(name, known); near != "" {
			there = fmt.Sprintf("did you mean %q?", near)
		}
		b.errorf([]any{"tools", i, "builtin"}, "tools[%d]: there is no builtin tool %q; %s", i, name, there)
		return nil
	}
	made, err := b.Tools.Tool(name, func(v any) error { return b.doc.Decode(v, "tools", i, "with") })
	if e, ok := errors.AsType[*failure.Error](err); ok {
		b.errorf([]any{"tools", i, "with"}, "tools[%d].%s", i, e.Message)
		return nil
	}
	if err != nil {
		b.errs = append(b.errs, err)
		return nil
	}
	return []tool.Tool{made}
}

// buildClientTool creates a tool that the client runs. If that fails, it records the problem.
func (b *builder) buildClientTool(c Client, i int) []tool.Tool {
	place := []any{"tools", i, "client", "parameters"}
	var parameters any
	if err := b.doc.Decode(&parameters, place...); err != nil {
		b.errs = append(b.errs, err)
		return nil
	}
	schema, err := schemaFromYAML(parameters)
	if err != nil {
		b.errorf(place, "tools[%d].client.parameters: %s", i, err)
		return nil
	}
	made, err := tool.Client(c.Name, c.Description, schema)
	if err != nil {
		b.errorf(place[:3], "tools[%d].client: %s", i, failure.PlainMessage(err))
		return nil
	}
	return []tool.Tool{made}
}

// schemaFromYAML converts a JSON Schema written in YAML.
func schemaFromYAML(parameters any) (json.RawMessage, error) {
	if parameters == nil {
		return json.RawMessage(`{"type":"object"}`), nil
	}
	fields, ok := parameters.(map[string]any)
	if !ok {
		return nil, errors.New("want a JSON Schema, such as {type: object, properties: {place: {type: string}}}")
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("want values that JSON can represent: %w", err)
	}
	_, err = tool.NewSchema(text)
	return text, err
}
