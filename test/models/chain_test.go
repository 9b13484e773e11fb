package models

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
)

// The key of the first model was withdrawn and the second does not answer: the third answers.
func TestMesh_AsksTheNextModelOfTheChain(t *testing.T) {
	silence := make(chan struct{})
	server := provider(t, func(asked llmtest.Asked) llmtest.Reply {
		switch asked.Model {
		case "withdrawn":
			return llmtest.Reply{Refuse: http.StatusUnauthorized}
		case "silent":
			<-silence
		default:
		}
		return llmtest.Reply{Say: []string{"Here ", "I am."}}
	})
	t.Cleanup(func() { close(silence) }) // before the server waits for its last request
	c := mesh(t, agents(t, `  model:
    - openai/withdrawn
    - {name: openai/silent, timeout: 100ms}
    - openai/present
`))
	_, answer := turn(t, c, "Who is there?")
	require.Equal(t, "Here I am.", answer)
	var models []string
	for _, asked := range server.Asked() {
		models = append(models, asked.Model)
	}
	require.Equal(t, []string{"withdrawn", "silent", "present"}, models)
}
