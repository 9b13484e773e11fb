package models

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// The first model rejects its API key and the second does not respond, so the third model of the chain answers the
// request.
func TestMesh_FallsBackToTheNextModel(t *testing.T) {
	silence := make(chan struct{})
	server := startProvider(t, func(asked llmtest.DecodedRequest) llmtest.Reply {
		switch asked.Model {
		case "withdrawn":
			return llmtest.Reply{ErrorStatus: http.StatusUnauthorized}
		case "silent":
			<-silence
		default:
		}
		return llmtest.Reply{Texts: []string{"Here ", "I am."}}
	})
	t.Cleanup(func() { close(silence) }) // before the server waits for its last request
	c := startMesh(t, agentFolder(t, `  model:
    - openai/withdrawn
    - {name: openai/silent, timeout: 100ms}
    - openai/present
`))
	_, answer := runTurn(t, c, "Who is there?")
	require.Equal(t, "Here I am.", answer)
	var models []string
	for _, asked := range server.Requests() {
		models = append(models, asked.Model)
	}
	require.Equal(t, []string{"withdrawn", "silent", "present"}, models)
}
