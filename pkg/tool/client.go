package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Client makes a tool that the client of the agent runs, because only the client has its screen, its files or its
// keys (LP-16). When a model calls it, the turn ends with the call, as execution.NeedResult. The turn that brings
// the result continues, and the model reads it. Here the tool never runs.
//
// The schema is a JSON Schema of type object; NewSchema says what it may hold. {"type": "object"} accepts any
// arguments. Arguments that do not match never reach the client: the model reads what the schema wants (CO-37).
// Modes: agent_validation.
func Client(name, description string, schema json.RawMessage) (Tool, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	invalid := func(what string) *failure.Error {
		return failure.Newf(failure.AgentValidation, "tool.Client", "tool %s: %s", name, what)
	}
	if strings.TrimSpace(description) == "" {
		return nil, invalid(noDescriptionText)
	}
	if len(schema) == 0 {
		return nil, invalid(`the schema of the arguments is missing; one without arguments is {"type": "object"}`)
	}
	read, err := NewSchema(schema)
	if err != nil {
		return nil, invalid(err.Error()).Because(err)
	}
	if read.resolved.Schema().Type != "object" {
		return nil, invalid(`the schema of the arguments must have the type "object"`)
	}
	return &clientTool{llm.ToolSpec{Name: name, Description: description, Schema: bytes.Clone(schema)}, read}, nil
}

// clientTool is a Tool that the client runs, not this process.
type clientTool struct {
	spec   llm.ToolSpec
	schema *Schema
}

func (c *clientTool) Spec() llm.ToolSpec { return c.spec }

// Scope implements Scoper: the client's screen or files may contain third-party text.
func (c *clientTool) Scope() Scope { return Scope{Untrusted: true} }

// Call never runs the tool.
func (c *clientTool) Call(_ context.Context, args json.RawMessage) (Result, error) {
	if _, err := c.schema.Check(c.spec.Name, args); err != nil {
		return Result{}, err
	}
	return Result{}, failure.Newf(failure.AgentState, "tool.Call",
		"%s runs at the client of the agent, not here; give it to an agent in a session, whose turn ends with the call and continues with its result", c.spec.Name)
}

// AtClient reports whether a tool, or the tool that WithEffect, WithLogin or WithScope decorates, was made by Client. If so, it
// returns the schema of its arguments.
func AtClient(t Tool) (*Schema, bool) {
	switch t := t.(type) {
	case *clientTool:
		return t.schema, true
	case *decoratedTool:
		return AtClient(t.Tool)
	default:
		return nil, false
	}
}
