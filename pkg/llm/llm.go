// Package llm is the contract between agents and models.
package llm

import (
	"context"
	"encoding/json"
	"iter"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Model turns a conversation into the next assistant message. Implementations are safe
// for concurrent use and keep nothing between calls.
type Model interface {
	// Name is the full name, with its prefix, such as "builtin/extractive".
	Name() string
	// Generate streams the next message. It yields any number of deltas. If it fails, the last item is an error: the error
	// of ctx if ctx ended, otherwise a failure.Error, whose cause is an Error if a provider failed. When the consumer stops
	// or ctx ends, the request to the provider is cancelled.
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
	// Temperature is how freely the model chooses its words, 0 to MaxTemperature; nil: as its
	// provider has it.
	Temperature *float64
}

// Instructions are the system prompt, with the system messages of the conversation, and how a
// choice is to be made: for providers that take no system message among the others.
func (r Request) Instructions() string {
	var all []string
	add := func(s string) {
		if strings.TrimSpace(s) != "" {
			all = append(all, s)
		}
	}
	add(r.System)
	for _, m := range r.Messages {
		if m.Reader() == conversation.RoleSystem {
			add(m.Text)
		}
	}
	if len(r.Choices) > 0 {
		add(r.HowToChoose())
	}
	return strings.Join(all, "\n\n")
}

// HowToChoose tells a model to answer with one of the choices.
func (r Request) HowToChoose() string {
	return "Answer with exactly one of these words and nothing else: " + strings.Join(r.Choices, ", ")
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
	Finish    Finish                  // why the answer ended; empty before, or when it is not known
	Model     string                  // full name of the model that answers, when that is not the one that was asked; told once
}

// Finish says why an answer ended.
type Finish string

// The reasons. An answer that a content filter of the provider stopped does not end in
// one, but in an error of kind Refused.
const (
	FinishStop    Finish = "stop"       // the model said all
	FinishLength  Finish = "length"     // it reached the limit of what it may say; text or arguments may be cut
	FinishCalls   Finish = "tool_calls" // it waits for the results of its calls
	FinishRefusal Finish = "refusal"    // it declined, in its own words: the text
)

// says reports whether the delta is part of what the model says, and not only about it.
func (d Delta) says() bool { return d.Text != "" || len(d.ToolCalls) > 0 || d.Finish != "" }
