package gemini_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/gemini"
	"github.com/troupe-dev/troupe/pkg/secret"
)

func TestMain(m *testing.M) {
	// A library under the SDK starts this one when the process does, and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const key = "AIza-test-0123456789"

// server gives the same answer to every request, and keeps what it was asked.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	header http.Header // of the last request
	path   string
}

// serve returns a server of one answer: an event stream, or an error when the status says so.
func serve(t *testing.T, status int, answer string) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.bodies, s.header, s.path = append(s.bodies, string(body)), r.Header.Clone(), r.URL.Path
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if status >= http.StatusBadRequest {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s
}

// asked is the last request.
func (s *server) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies[len(s.bodies)-1]
}

// recorded is a file of testdata.
func recorded(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(data)
}

// open returns a model that asks the server, once.
func open(t *testing.T, s *server, c gemini.Config) llm.Model {
	t.Helper()
	c.Key, c.BaseURL, c.Retry = secret.New(key), s.URL, llm.Retry{Limit: -1}
	m, err := gemini.New("gemini/gemini-3-pro", c)
	require.NoError(t, err)
	return m
}

// answer is all that a model says: its texts as they came, and the rest added up.
func answer(t *testing.T, m llm.Model, req llm.Request) (texts []string, rest llm.Delta, err error) {
	t.Helper()
	for d, failed := range m.Generate(t.Context(), req) {
		if failed != nil {
			return texts, rest, failed
		}
		if d.Text != "" {
			texts = append(texts, d.Text)
		}
		rest.ToolCalls = append(rest.ToolCalls, d.ToolCalls...)
		rest.Usage = rest.Usage.Add(d.Usage)
		rest.Finish += d.Finish
	}
	return texts, rest, nil
}
