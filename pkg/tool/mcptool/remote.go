package mcptool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// remoteTool is a tool of an MCP server.
type remoteTool struct {
	server     *Server
	name       string // name at the server
	publicName string // name that the model sees
	definition atomic.Pointer[definition]
}

// definition is the server's description of a tool.
type definition struct {
	spec   llm.ToolSpec
	effect execution.Effect
	schema *tool.Schema // (nil means that only the server checks)
}

var (
	_ tool.Tool     = (*remoteTool)(nil)
	_ tool.Effector = (*remoteTool)(nil)
	_ tool.Starter  = (*remoteTool)(nil)
)

func newRemote(s *Server, name string) *remoteTool {
	r := &remoteTool{server: s, name: name, publicName: publicName(s.config.Prefix, name)}
	r.definition.Store(&definition{spec: llm.ToolSpec{Name: r.publicName}, effect: execution.AtMostOnce})
	return r
}

// Spec implements tool.Tool. Before the tool is started, the spec has no description and no schema.
func (r *remoteTool) Spec() llm.ToolSpec { return r.definition.Load().spec }

// Effect implements tool.Effector. It follows the server's annotations. Without annotations it is AtMostOnce.
func (r *remoteTool) Effect() execution.Effect { return r.definition.Load().effect }

// Scope implements tool.Scoper. It is untrusted, with egress, whatever the server says about itself, such as that
// its world is closed. An author who knows better declares the scope with tool.WithScope.
func (r *remoteTool) Scope() tool.Scope {
	return tool.Scope{Untrusted: true, Egress: true, Party: conversation.SourceName(tool.PartyPrefix, r.server.config.displayName())}
}

// Start implements tool.Starter.
func (r *remoteTool) Start(ctx context.Context) error { return r.server.start(ctx) }

// Close implements tool.Starter.
func (r *remoteTool) Close() error {
	r.server.stop()
	return nil
}

var invalidInName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// publicName returns a tool name that all model providers accept. A name that is too long ends with part of its
// hash, so that two long names with the same beginning stay different.
func publicName(prefix, name string) string {
	public := prefix + invalidInName.ReplaceAllString(name, "_")
	if len(public) <= tool.MaxName {
		return public
	}
	sum := sha256.Sum256([]byte(name))
	tail := "_" + hex.EncodeToString(sum[:4])
	return public[:tool.MaxName-len(tail)] + tail
}

// storeDefinitions stores the server's definitions of the tools that the agent uses.
func (s *Server) storeDefinitions(offered []*mcp.Tool) error {
	for _, r := range s.tools {
		t := findTool(offered, r.name)
		if t == nil {
			return s.newServerError(failure.NotFound, "has no tool %q; %s", r.name, suggestNames(r.name, offered))
		}
		d, err := s.newDefinition(r, t)
		if err != nil {
			return err
		}
		r.definition.Store(d)
	}
	return nil
}

func findTool(offered []*mcp.Tool, name string) *mcp.Tool {
	if i := slices.IndexFunc(offered, func(t *mcp.Tool) bool { return t.Name == name }); i >= 0 {
		return offered[i]
	}
	return nil
}

func suggestNames(name string, offered []*mcp.Tool) string {
	var names []string
	for _, t := range offered {
		names = append(names, t.Name)
	}
	if near := manifest.Nearest(name, names); near != "" {
		return "did you mean \"" + near + "\"?"
	}
	if len(names) == 0 {
		return "it has none"
	}
	return "it has " + strings.Join(names, ", ")
}

func (s *Server) newDefinition(r *remoteTool, t *mcp.Tool) (*definition, error) {
	d := &definition{spec: llm.ToolSpec{Name: r.publicName, Description: t.Description}, effect: execution.AtMostOnce}
	if d.spec.Description == "" {
		d.spec.Description = t.Title
	}
	if a := t.Annotations; a != nil && a.ReadOnlyHint {
		d.effect = execution.Read
	} else if a != nil && a.IdempotentHint {
		d.effect = execution.Idempotent
	}
	schema, err := json.Marshal(t.InputSchema)
	if err != nil || !bytes.HasPrefix(schema, []byte("{")) {
		return nil, s.newServerError(failure.ResourceTool, "has no schema for the arguments of %s; leave the tool out", t.Name).Because(err)
	}
	d.spec.Schema = schema
	if d.schema, err = tool.NewSchema(schema); err != nil {
		d.schema = nil
		s.log.Warn("only the server checks the arguments of a tool", zap.String("tool", r.name), zap.Error(err))
	}
	return d, nil
}

// logChangedDefinitions logs each tool whose definition differs from the one at the start.
func (s *Server) logChangedDefinitions(offered []*mcp.Tool) {
	for _, r := range s.tools {
		t := findTool(offered, r.name)
		if t == nil {
			s.log.Warn("the server no longer offers a tool", zap.String("tool", r.name))
			continue
		}
		was := r.definition.Load()
		is, err := s.newDefinition(r, t)
		if err != nil || is.spec.Description != was.spec.Description || is.effect != was.effect || !bytes.Equal(is.spec.Schema, was.spec.Schema) {
			s.log.Warn("the server has changed the description of a tool; the agent uses the new one after its next start", zap.String("tool", r.name))
		}
	}
}
