package openai_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// The API accepts images only in messages of the user. So they follow the last result of the round. Mistral rejects a
// message of the user right after a result, so one of the assistant stands between them.
//
// Req: CO-74
func TestModel_SendsFilesOfToolResultsAfterTheRound(t *testing.T) {
	shot := func(call string) conversation.Message {
		return conversation.Message{Role: conversation.RoleTool, ToolCallID: call, Text: "done", Attachments: []conversation.Attachment{
			{Name: call + ".png", MediaType: "image/png", Size: 3, Data: []byte("png")},
		}}
	}
	asks := conversation.Assistant("", "")
	asks.ToolCalls = []conversation.ToolCall{{ID: "a", Name: "shoot", Arguments: `{}`}, {ID: "b", Name: "shoot", Arguments: `{}`}}
	req := llm.Request{Messages: []conversation.Message{conversation.User("Look."), asks, shot("a"), shot("b")}}
	const (
		results = `{"role":"tool","tool_call_id":"a","content":"done"},{"role":"tool","tool_call_id":"b","content":"done"},`
		bridge  = `{"role":"assistant","content":"I have the results."},`
		files   = `{"role":"user","content":[
			{"type":"text","text":"[file a.png of the result of the call a]"},{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}},
			{"type":"text","text":"[file b.png of the result of the call b]"},{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}}]}`
	)
	for name, want := range map[string]string{"openai/gpt-5": results + files, "mistral/pixtral-large": results + bridge + files} {
		t.Run(name, func(t *testing.T) {
			s := llmtest.NewReplay(t, http.StatusOK, eventStream("\n", deltaEvent(`"content":"Hi"`), finishEvent("stop")))
			require.NoError(t, llmtest.Ask(t.Context(), openModel(t, name, s.URL), req).Err)
			var sent struct{ Messages []json.RawMessage }
			require.NoError(t, json.Unmarshal([]byte(s.Last().Body), &sent))
			got, err := json.Marshal(sent.Messages[2:])
			require.NoError(t, err)
			require.JSONEq(t, "["+want+"]", string(got))
		})
	}
}
