package local_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// closingTool counts how often it is closed.
type closingTool struct {
	tool.Tool
	closeCount int
}

func (*closingTool) Start(context.Context) error { return nil }
func (c *closingTool) Close() error              { c.closeCount++; return nil }

// Req: CO-6, CO-14, CO-73
func TestSession_AskContinuesTheConversation(t *testing.T) {
	model := scripted.New(scripted.Say("Oslo."), scripted.Say("700,000."), scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")))
	resource := &closingTool{Tool: lookup(t)}
	s, err := local.New(t.Context(), agent.Config{Name: "guide", Model: model, Tools: []tool.Tool{resource}})
	require.NoError(t, err)
	text, err := s.Ask(t.Context(), "Capital of Norway?")
	require.NoError(t, err)
	require.Equal(t, "Oslo.", text)
	text, err = s.Ask(t.Context(), "How many live there?")
	require.NoError(t, err)
	require.Equal(t, "700,000.", text)
	require.Equal(t, []string{"user: Capital of Norway?", "ai: Oslo.", "user: How many live there?"}, transcript(model.Requests()[1].Messages))
	_, err = s.Ask(t.Context(), "And now?")
	require.Equal(t, failure.ResourceAPI, failure.ModeOf(err))

	require.Zero(t, resource.closeCount)
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, session.Closed, s.State())
	require.Equal(t, 1, resource.closeCount, "the agent is closed with its session")
}

func TestNew_RejectsAnInvalidAgent(t *testing.T) {
	_, err := local.New(t.Context(), agent.Config{Name: "Not a name"})
	require.Equal(t, failure.AgentValidation, failure.ModeOf(err))
}

// Construction and first answer of an agent with one tool take at most six statements.
//
// Req: CO-73
func TestExampleNew_IsShort(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "example_new_test.go", nil, 0)
	require.NoError(t, err)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "ExampleNew" {
			require.LessOrEqual(t, len(f.Body.List)-1, 6, "the last one prints the answer")
			return
		}
	}
	t.Fatal("there is no ExampleNew")
}
