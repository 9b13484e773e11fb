// Package talk provides an agent whose replies depend only on the conversation, so that every process gives the
// same replies.
package talk

import (
	"context"
	"fmt"
	"iter"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// New returns the agent. The input "work" makes it call the tool work, which may run only once.
func New(work func(context.Context) error) (*agent.Agent, error) {
	works, err := tool.Func("work", "Works.", func(ctx context.Context, _ struct{}) (string, error) { return "worked", work(ctx) })
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{Name: "talker", Model: model{}, Tools: []tool.Tool{tool.WithEffect(execution.AtMostOnce, works)}})
}

type model struct{}

func (model) Name() string { return "test/talk" }

// Generate implements llm.Model.
func (model) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	last := req.Messages[len(req.Messages)-1]
	reply := llm.Delta{Text: fmt.Sprintf("I know %d messages.", len(req.Messages))}
	if last.Role == conversation.RoleUser && last.Text == "work" {
		reply = llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "c1", Name: "work", Arguments: "{}"}}}
	}
	return func(yield func(llm.Delta, error) bool) { yield(reply, nil) }
}
