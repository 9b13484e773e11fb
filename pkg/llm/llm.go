// Package llm is the contract between agents and models.
package llm

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Model turns a conversation into the next assistant message. Implementations are safe
// for concurrent use and keep nothing between calls.
type Model interface {
	// Name is the full name, with its prefix, such as "builtin/extractive".
	Name() string
	// Generate streams the next message. It yields any number of deltas, or one error as
	// the last item: a failure.Error of mode resource_api or user_invalid_input. When the
	// consumer stops or ctx ends, the request to the provider is given up.
	Generate(ctx context.Context, req Request) iter.Seq2[Delta, error]
}

// Request is what a model is asked.
type Request struct {
	System   string
	Messages []conversation.Message // oldest first
	Tools    []ToolSpec             // that the model may ask for
	// Choices, when there are any, are the words of which the answer must name one: the
	// form in which routing decisions are asked for.
	Choices []string
}

// ToolSpec tells a model what a tool does and takes.
type ToolSpec struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments, an object
}

// Delta is a piece of the answer.
type Delta struct {
	Text      string                  // to be appended
	ToolCalls []conversation.ToolCall // complete calls; a model sends each once
	Usage     execution.Usage         // to be added up; ModelCalls stays 0
}
