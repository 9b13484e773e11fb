package models

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// library serves the two tools of the assistant: papers, and the web.
func library(t *testing.T) (url string) {
	t.Helper()
	type query struct {
		Query string `json:"query"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, nil)
	for name, found := range map[string]string{
		"pdf_retrieval": "attention.pdf, page 3: attention is a weighted sum.",
		"web_search":    "news.example.org: a new model came out this week.",
	} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "Finds passages."},
			func(context.Context, *mcp.CallToolRequest, query) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: found}}}, nil, nil
			})
	}
	s := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(s.Close)
	return s.URL
}

// assistant returns the folder of the research assistant with another model and tool.
func assistant(t *testing.T, tools string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, researchassistant.FS))
	file := filepath.Join(folder, "agents.yaml")
	text, err := fs.ReadFile(researchassistant.FS, "agents.yaml")
	require.NoError(t, err)
	declared := strings.ReplaceAll(string(text), "model: "+extractive.Name, "model: openai/test-large")
	before, rest, ok := strings.Cut(declared, "    - builtin: search_documents\n")
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, "\n") // its settings
	require.True(t, ok)
	require.NoError(t, os.WriteFile(file, []byte(before+"    - mcp: {url: \""+tools+"\"}\n"+after), 0o600))
	return folder
}

// judge answers like a model that understands a question by its words.
func judge(asked llmtest.Asked) llmtest.Reply {
	say := func(text string) llmtest.Reply { return llmtest.Reply{Say: []string{text}} }
	question := ""
	for _, m := range asked.Messages {
		if m.Role == conversation.RoleUser {
			question = m.Text
		}
	}
	switch {
	case strings.Contains(asked.System, "You decide what happens"):
		if strings.Contains(question, "about it") {
			return say("CLARIFICATION")
		}
		return say("RESEARCH")
	case strings.Contains(asked.System, "too unclear to be looked up"):
		return say("What would you like to know more about?")
	case strings.Contains(asked.System, "You write the answer"):
		return say("This is what was found.")
	}
	if found := results(asked); len(found) > 0 {
		return say("Found.")
	}
	var calls []llmtest.Call
	if strings.Contains(question, "paper") {
		calls = append(calls, call("call_pdf", "pdf_retrieval", `{"query":"attention"}`))
	}
	if strings.Contains(question, "this week") {
		calls = append(calls, call("call_web", "web_search", `{"query":"news"}`))
	}
	if len(calls) == 0 {
		return say("Nothing to look up.")
	}
	return llmtest.Reply{Calls: calls}
}

// said is the outcome of a turn with the assistant.
type said struct {
	agents, tools []string
	outcome       string
	confidence    float64
}

func consult(t *testing.T, c *client.Client, session, text string) (s said) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req := &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Text{Text: text}, SessionId: session}
	for e, err := range c.Turn(ctx, req) {
		require.NoError(t, err)
		switch {
		case e.GetStepFinished() != nil:
			s.agents = append(s.agents, e.GetAgent())
		case e.GetToolCallFinished() != nil:
			require.Equal(t, troupev1.ToolStatus_TOOL_STATUS_SUCCESS, e.GetToolCallFinished().GetStatus())
			s.tools = append(s.tools, e.GetToolCallFinished().GetTool())
		case e.GetTurnResult() != nil:
			s.outcome = strings.TrimPrefix(e.GetTurnResult().GetOutcome().String(), "TURN_OUTCOME_")
			s.confidence = e.GetTurnResult().GetConfidence()
		}
	}
	return s
}

// The scenarios that judge a research assistant: the one of this repository, on a real
// mesh, with tools of a server and a model that knows what it is asked.
//
// Req: RA-27
func TestAssistant_IsJudged(t *testing.T) {
	provider(t, judge)
	c := mesh(t, assistant(t, library(t)))
	found := []string{"coordinator", "research", "synthesis"}
	asks := said{agents: []string{"coordinator", "clarification"}, outcome: "INPUT_REQUIRED"}
	for name, tc := range map[string]struct {
		question string
		want     said
	}{
		"a vague question is asked back, and no tool runs": {"Tell me about it", asks},
		"what the papers say is looked up there":           {"What does the paper say of attention?", said{found, []string{"pdf_retrieval"}, "COMPLETED", 0.6}},
		"what is new is looked up on the web":              {"What came out this week?", said{found, []string{"web_search"}, "COMPLETED", 0.6}},
		"what is both is looked up in both": {
			"Is the paper still right this week?",
			said{found, []string{"pdf_retrieval", "web_search"}, "COMPLETED", 0.8},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, consult(t, c, uuid.NewString(), tc.question))
		})
	}
	t.Run("a vague user is asked twice at most", func(t *testing.T) {
		session, row := uuid.NewString(), 0
		for range 5 {
			if s := consult(t, c, session, "Tell me about it"); s.outcome == "INPUT_REQUIRED" {
				row++
				require.Empty(t, s.tools)
			} else {
				row = 0
				require.Equal(t, "COMPLETED", s.outcome)
				require.Equal(t, found[1:], s.agents, "the coordinator's model is not asked")
			}
			require.LessOrEqual(t, row, 2)
		}
	})
}
