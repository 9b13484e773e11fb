package gemini_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/gemini"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Models of the third generation get files inside of the function response. Earlier ones reject that, and reject other
// parts beside a function response, so they get a content that follows.
//
// Req: CO-74
func TestModel_SendsFilesOfToolResultsAsItsGenerationReadsThem(t *testing.T) {
	asks := conversation.Assistant("", "")
	asks.ToolCalls = []conversation.ToolCall{{ID: "1", Name: "shoot", Arguments: `{}`}}
	req := llm.Request{Messages: []conversation.Message{conversation.User("Look."), asks, {
		Role: conversation.RoleTool, ToolCallID: "1", Text: "done",
		Attachments: []conversation.Attachment{{Name: "shot.png", MediaType: "image/png", Size: 3, Data: []byte("png")}},
	}, conversation.User("And now?")}}
	for name, want := range map[string]string{
		"gemini/gemini-3-pro": `[
			{"role":"user","parts":[{"functionResponse":{"name":"shoot","response":{"output":"done"},"parts":[{"inlineData":{"mimeType":"image/png","data":"cG5n"}}]}}]},
			{"role":"user","parts":[{"text":"And now?"}]}]`,
		"gemini/gemini-2.5-flash": `[
			{"role":"user","parts":[{"functionResponse":{"name":"shoot","response":{"output":"done"}}}]},
			{"role":"user","parts":[{"text":"[file shot.png of a result of shoot]"},{"inlineData":{"mimeType":"image/png","data":"cG5n"}},{"text":"And now?"}]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			s := llmtest.NewReplay(t, http.StatusOK, llmtest.ReadRecording(t, "text.sse"))
			m, err := gemini.New(name, gemini.Config{Key: secret.New(key), BaseURL: s.URL, Retry: llm.Retry{Limit: -1}})
			require.NoError(t, err)
			require.NoError(t, llmtest.Ask(t.Context(), m, req).Err)
			var sent struct{ Contents []json.RawMessage }
			require.NoError(t, json.Unmarshal([]byte(s.Last().Body), &sent))
			got, err := json.Marshal(sent.Contents[2:])
			require.NoError(t, err)
			require.JSONEq(t, want, string(got))
		})
	}
}
