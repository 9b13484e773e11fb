package llmtest

import (
	"context"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Answer is the whole answer of a model to one request.
type Answer struct {
	Texts   []string // the text deltas in order
	Thought string
	Calls   []conversation.ToolCall
	Usage   execution.Usage
	Finish  llm.Finish
	Model   string // model that answers (empty if the deltas do not say)
	Err     error
}

// Text returns the whole text.
func (a Answer) Text() string { return strings.Join(a.Texts, "") }

// Ask sends a request to a model and returns the whole answer.
func Ask(ctx context.Context, m llm.Model, req llm.Request) (all Answer) {
	for d, err := range m.Generate(ctx, req) {
		all.Add(d, err)
	}
	return all
}

// Add adds the next delta or the error.
func (a *Answer) Add(d llm.Delta, err error) {
	if d.Text != "" {
		a.Texts = append(a.Texts, d.Text)
	}
	a.Thought += d.Thought
	a.Calls = append(a.Calls, d.ToolCalls...)
	a.Usage = a.Usage.Add(d.Usage)
	a.Finish += d.Finish
	a.Model += d.Model
	if err != nil {
		a.Err = err
	}
}
