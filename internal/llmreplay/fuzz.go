package llmreplay

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Fuzz makes an adapter read random streams. Each must end with an answer or an error. The seeds are the recorded
// files that match the pattern. open must return a model that sends its requests to the server at baseURL, without
// retries.
func Fuzz(f *testing.F, recorded string, open func(baseURL string) (llm.Model, error)) {
	f.Helper()
	files, err := filepath.Glob(recorded)
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a test names them
		require.NoError(f, err)
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte("data: {}\n\ndata: null\n\ndata: []\n\ndata: [DONE]\n\n"))
	var answer atomic.Pointer[[]byte]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(*answer.Load())
	}))
	f.Cleanup(server.Close)
	model, err := open(server.URL)
	require.NoError(f, err)
	req := llm.Request{Messages: []conversation.Message{{Role: conversation.RoleUser, Text: "hi"}}, Tools: []llm.ToolSpec{{
		Name:        "look",
		Description: "Looks.",
	}}}
	f.Fuzz(func(t *testing.T, stream []byte) {
		answer.Store(&stream)
		began := time.Now()
		for _, err := range model.Generate(t.Context(), req) {
			if err != nil {
				require.NotEmpty(t, err.Error())
				break
			}
		}
		require.Less(t, time.Since(began), 30*time.Second)
	})
}
