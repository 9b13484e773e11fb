package models

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/anthropictest"
	"github.com/troupe-dev/troupe/internal/geminitest"
	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/anthropic"
	"github.com/troupe-dev/troupe/pkg/llm/gemini"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// An agent opens a hit of the turn before without another search, with each provider. Each request begins with the one
// before, so that the provider finds it in its cache. TestTwin_SameRequestsInBothRuntimes shows that a mesh asks the same.
//
// Req: LP-45
func TestMemory_ProvidersGetToolRoundsOfEarlierTurns(t *testing.T) {
	for name, c := range map[string]struct {
		wire     llmtest.Wire
		messages string // field of a request with the messages
		open     func(url string) (llm.Model, error)
	}{
		"openai": {openaitest.Wire{}, "messages", func(url string) (llm.Model, error) {
			return openai.New("openai/test-large", openai.Config{BaseURL: url, Key: secret.New("k")})
		}},
		// DeepSeek refuses the second round of a turn, and each later turn, without the thoughts before the call.
		"deepseek": {openaitest.Wire{RequiresReasoning: true}, "messages", func(url string) (llm.Model, error) {
			return openai.New("deepseek/test-large", openai.Config{BaseURL: url, Key: secret.New("k")})
		}},
		"anthropic": {anthropictest.Wire{}, "messages", func(url string) (llm.Model, error) {
			return anthropic.New("anthropic/test-large", anthropic.Config{BaseURL: url, Key: secret.New("k")})
		}},
		"gemini": {geminitest.Wire{}, "contents", func(url string) (llm.Model, error) {
			return gemini.New("gemini/test-large", gemini.Config{BaseURL: url, Key: secret.New("k")})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := llmtest.NewServer(t, c.wire, answerLikeASearcher)
			model, err := c.open(server.URL)
			require.NoError(t, err)
			searches := 0
			search, err := tool.Func("search", "Searches.", func(context.Context, struct{}) (string, error) {
				searches++
				return "1: a.example\n2: b.example\n3: c.example", nil
			})
			require.NoError(t, err)
			a, err := agent.New(agent.Config{Name: "searcher", Instructions: "Search.", Model: model, Tools: []tool.Tool{search}})
			require.NoError(t, err)
			s, err := local.Open(t.Context(), a, local.Config{Store: inmem.New(inmem.Config{})})
			require.NoError(t, err)
			for _, turn := range [][2]string{{"Find it.", "I found three hits."}, {"Open the third hit.", "It is c.example."}, {"Thanks.", "It is c.example."}} {
				done, err := s.Execute(t.Context(), local.Input{Text: turn[0]}, nil)
				require.NoError(t, err)
				require.Equal(t, turn[1], done.Result.Text)
			}
			require.NoError(t, s.Close(t.Context()))
			require.Equal(t, 1, searches)

			bodies := server.Bodies()
			require.Len(t, bodies, 4)
			for i, body := range bodies[1:] {
				before, settingsBefore := splitRequest(t, bodies[i], c.messages)
				after, settings := splitRequest(t, body, c.messages)
				require.Equal(t, settingsBefore, settings)
				require.Greater(t, len(after), len(before))
				require.Equal(t, before, after[:len(before)], "request %d begins with request %d", i+2, i+1)
			}
		})
	}
}

// answerLikeASearcher searches when it is asked to, and opens the third hit of an earlier search.
func answerLikeASearcher(asked llmtest.DecodedRequest) llmtest.Reply {
	reply := llmtest.Reply{Texts: []string{"I know of no hits."}}
	switch last := asked.Messages[len(asked.Messages)-1]; {
	case last.Role == conversation.RoleTool:
		reply.Texts[0] = "I found three hits."
	case strings.HasPrefix(last.Text, "Find"):
		return llmtest.Reply{Thoughts: []string{"I must search."}, Calls: []llmtest.Call{{ID: "call_1", Name: "search", ArgumentParts: []string{"{}"}}}}
	default:
		found := func(m conversation.Message) bool { return m.Role == conversation.RoleTool }
		if i := slices.IndexFunc(asked.Messages, found); i >= 0 {
			_, third, _ := strings.Cut(asked.Messages[i].Text, "3: ")
			reply.Texts[0] = "It is " + third + "."
		}
	}
	return reply
}

// splitRequest returns the messages of a request in the provider's format, and the rest of it. Marks that say what to
// cache are left out, because they move with the end of the conversation.
func splitRequest(t *testing.T, body, field string) (messages []any, settings map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(body), &settings))
	messages, _ = settings[field].([]any)
	require.NotEmpty(t, messages)
	delete(settings, field)
	removeField(messages, "cache_control")
	return messages, settings
}

// removeField removes a field from all objects in v.
func removeField(v any, name string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			removeField(e, name)
		}
	case map[string]any:
		delete(v, name)
		for _, e := range v {
			removeField(e, name)
		}
	}
}
