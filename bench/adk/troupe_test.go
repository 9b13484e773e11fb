package adk_test

import (
	"context"
	"iter"
	"strconv"
	"testing"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// troupeModel is a scripted model for Troupe.
type troupeModel struct{ rounds, said int }

func (*troupeModel) Name() string { return "scripted/model" }

func (m *troupeModel) Generate(context.Context, llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		m.said++
		usage := execution.Usage{InputTokens: 10, OutputTokens: 5}
		if m.said > m.rounds {
			yield(llm.Delta{Text: answer, Usage: usage}, nil)
			return
		}
		yield(llm.Delta{Usage: usage, ToolCalls: []conversation.ToolCall{
			{ID: "call-" + strconv.Itoa(m.said), Name: "echo", Arguments: `{"word": "` + word + `"}`},
		}}, nil)
	}
}

func newTroupeEcho(b *testing.B) tool.Tool {
	b.Helper()
	t, err := tool.Func("echo", "Says a word again.", func(_ context.Context, in echo) (string, error) { return in.Word, nil })
	if err != nil {
		b.Fatal(err)
	}
	return tool.WithEffect(execution.Read, t)
}
