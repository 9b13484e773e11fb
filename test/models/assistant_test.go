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

// startToolServer serves the assistant's two tools, which search papers and the web.
func startToolServer(t *testing.T) (url string) {
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

// assistantFolder returns the folder of the research assistant with another model and tool.
func assistantFolder(t *testing.T, tools string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, researchassistant.FS))
	file := filepath.Join(folder, "agents.yaml")
	text, err := fs.ReadFile(researchassistant.FS, "agents.yaml")
	require.NoError(t, err)
	declared := strings.ReplaceAll(string(text), "model: "+extractive.Name, "model: openai/test-large")
	before, rest, ok := strings.Cut(declared, "    - builtin: search_documents\n")
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, "\n") // settings of the model
	require.True(t, ok)
	require.NoError(t, os.WriteFile(file, []byte(before+"    - mcp: {url: \""+tools+"\"}\n"+after), 0o600))
	return folder
}

// answerByKeyword plays the model. It chooses a reply by the words in the question.
func answerByKeyword(asked llmtest.DecodedRequest) llmtest.Reply {
	say := func(text string) llmtest.Reply { return llmtest.Reply{Texts: []string{text}} }
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
	if found := toolResults(asked); len(found) > 0 {
		return say("Found.")
	}
	var calls []llmtest.Call
	if strings.Contains(question, "paper") {
		calls = append(calls, toolCall("call_pdf", "pdf_retrieval", `{"query":"attention"}`))
	}
	if strings.Contains(question, "this week") {
		calls = append(calls, toolCall("call_web", "web_search", `{"query":"news"}`))
	}
	if len(calls) == 0 {
		return say("Nothing to look up.")
	}
	return llmtest.Reply{Calls: calls}
}

// turnOutcome is the outcome of a turn with the assistant.
type turnOutcome struct {
	agents, tools []string
	outcome       string
	confidence    float64
}

func askAssistant(t *testing.T, c *client.Client, session, text string) (s turnOutcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
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

// The research assistant passes its scenarios on a real mesh with tools from a server. A scripted model replaces
// the provider.
// Req: RA-27
func TestAssistant_PassesItsScenarios(t *testing.T) {
	startProvider(t, answerByKeyword)
	c := startMesh(t, assistantFolder(t, startToolServer(t)))
	found := []string{"coordinator", "research", "synthesis"}
	asks := turnOutcome{agents: []string{"coordinator", "clarification"}, outcome: "INPUT_REQUIRED"}
	for name, tc := range map[string]struct {
		question string
		want     turnOutcome
	}{
		"a vague question is asked back, and no tool runs": {"Tell me about it", asks},
		"what the papers say is looked up there": {"What does the paper say of attention?", turnOutcome{
			found,
			[]string{"pdf_retrieval"},
			"COMPLETED", 0.6,
		}},
		"what is new is looked up on the web": {"What came out this week?", turnOutcome{found, []string{"web_search"}, "COMPLETED", 0.6}},
		"what is both is looked up in both": {
			"Is the paper still right this week?",
			turnOutcome{found, []string{"pdf_retrieval", "web_search"}, "COMPLETED", 0.8},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, askAssistant(t, c, uuid.NewString(), tc.question))
		})
	}
	t.Run("a vague user is asked twice at most", func(t *testing.T) {
		session, row := uuid.NewString(), 0
		for range 5 {
			if s := askAssistant(t, c, session, "Tell me about it"); s.outcome == "INPUT_REQUIRED" {
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
