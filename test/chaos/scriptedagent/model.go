package scriptedagent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
)

// model is a stateless script whose reply depends only on the request. It reads the user's last message, whose
// text is the mark of the request.
type model struct{ ledger Ledger }

// Name implements llm.Model.
func (model) Name() string { return "chaos/script" }

// Generate calls the tools one after the other and then answers with their results. It sends the answer in pieces
// with a ledger call between them, so that a fault can hit it.
func (m model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		mark, step, results := parseConversation(req.Messages)
		call := ledger.Call{Kind: ledger.Model, Mark: mark, Step: step, Number: len(results) + 1}
		answer := answer(mark, step, results)
		if last := len(results) == len(ledger.Tools); last && !yield(llm.Delta{Text: answer[:len(answer)/2]}, nil) {
			return
		}
		if _, err := m.ledger.Post(ctx, call); err != nil {
			yield(llm.Delta{}, failure.New(failure.ResourceAPI, "chaos.Generate", "the ledger does not answer").Because(err))
			return
		}
		used := execution.Usage{InputTokens: 1, OutputTokens: 1}
		if len(results) < len(ledger.Tools) {
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{toolCall(mark, step, ledger.Tools[len(results)])}, Usage: used}, nil)
			return
		}
		yield(llm.Delta{Text: answer[len(answer)/2:], Usage: used}, nil)
	}
}

// parseConversation finds the mark, the number of the step, and the tool results so far. Messages with an author
// after the user's message are briefings from earlier steps.
func parseConversation(messages []conversation.Message) (mark string, step int, results []string) {
	for _, said := range messages {
		switch {
		case said.Role == conversation.RoleUser && said.Author == "":
			mark, step, results = said.Text, 1, nil
		case said.Role == conversation.RoleUser:
			step, results = step+1, nil
		case said.Role == conversation.RoleTool:
			results = append(results, said.Text)
		}
	}
	return mark, step, results
}

func toolCall(mark string, step int, tool ledger.Kind) conversation.ToolCall {
	in, _ := json.Marshal(arguments{mark, step}) // two plain fields
	return conversation.ToolCall{ID: "call_" + string(tool), Name: string(tool), Arguments: string(in)}
}

// answer returns a text that names the request, the step and the receipts.
func answer(mark string, step int, results []string) string {
	return fmt.Sprintf("%s step %d: %s", mark, step, strings.Join(results, " | "))
}
