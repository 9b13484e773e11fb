// Package llm defines the contract between agents and models.
package llm

import (
	"context"
	"encoding/json"
	"iter"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Model generates the next assistant message of a conversation. Implementations are safe for concurrent use and keep no
// state between calls.
type Model interface {
	// Name returns the full name with its prefix, such as "builtin/extractive".
	Name() string
	// Generate streams the next message. It yields any number of deltas. If it fails, the last item is an error.
	// This is the error of ctx if ctx ended, and otherwise a failure.Error, whose cause is an Error if a provider
	// failed. When the consumer stops or ctx ends, the request to the provider is cancelled.
	Generate(ctx context.Context, req Request) iter.Seq2[Delta, error]
}

// Request is one request to a model.
type Request struct {
	System   string
	Messages []conversation.Message // oldest first
	Tools    []ToolSpec             // tools that the model may call
	// Choices are the words of which the answer must name one (empty means a free answer). Routing decisions use
	// them.
	Choices []string
	// Temperature is the sampling temperature, 0 to MaxTemperature (nil means the provider's default). A higher
	// one makes the choice of words more random.
	Temperature *float64
}

// Instructions returns the system prompt, the system messages of the conversation and ChoiceInstruction as one
// text. It is for providers that accept no system messages in the conversation.
func (r Request) Instructions() string {
	var all []string
	add := func(s string) {
		if strings.TrimSpace(s) != "" {
			all = append(all, s)
		}
	}
	add(r.System)
	for _, m := range r.Messages {
		if m.ReaderRole() == conversation.RoleSystem {
			add(m.Text)
		}
	}
	if len(r.Choices) > 0 {
		add(r.ChoiceInstruction())
	}
	return strings.Join(all, "\n\n")
}

// ChoiceInstruction returns the instruction to answer with one of the choices.
func (r Request) ChoiceInstruction() string {
	return "Answer with exactly one of these words and nothing else: " + strings.Join(r.Choices, ", ")
}

// ToolSpec describes a tool and its arguments for a model.
type ToolSpec struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments, an object
}

// Delta is a piece of a model's response. What the provider must get back with the next request, and only it
// understands, is in the Extra of a conversation.ToolCall. Adapters keep nothing else of the raw response.
type Delta struct {
	Text      string                  // text to append to the answer
	Thought   string                  // reasoning of the model to append; not part of its answer
	ToolCalls []conversation.ToolCall // complete calls; a model sends each call once
	Usage     execution.Usage         // usage to add to the total; ModelCalls is always 0
	Finish    Finish                  // why the answer ended (empty before its end, or if unknown)
	Model     string                  // full name of the model that answers; set once, if it is not the model that was called
}

// Finish says why an answer ended.
type Finish string

// The reasons. An answer that a content filter of the provider stopped ends with an error of kind ContentFiltered
// instead.
const (
	FinishStop    Finish = "stop"       // the answer is complete
	FinishLength  Finish = "length"     // the answer reached its length limit; text or arguments may be cut
	FinishCalls   Finish = "tool_calls" // the model waits for the results of its calls
	FinishRefusal Finish = "refusal"    // the model declined, as the text says
	FinishOther   Finish = "other"      // the provider gave a reason that the adapter does not know; the answer may be incomplete
)

// hasContent reports whether the delta contains a part of the answer. A delta that only contains usage or the name
// of the model has no content.
func (d Delta) hasContent() bool {
	return d.Text != "" || d.Thought != "" || len(d.ToolCalls) > 0 || d.Finish != ""
}
