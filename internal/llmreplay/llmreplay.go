// Package llmreplay tests adapters of model providers with recorded answers, and with answers that no real provider should
// send.
package llmreplay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Server is a fake provider that sends the same bytes in answer to every request, and records the requests. It is safe
// for concurrent use.
type Server struct {
	URL string

	mu       sync.Mutex
	requests []Request
}

// Request is a request that the provider received.
type Request struct {
	Path   string
	Header http.Header
	Body   string
}

// New starts a server that sends answer until the test ends. The content type is an event stream, or JSON if
// the status is an error.
func New(t testing.TB, status int, answer string) *Server {
	t.Helper()
	r := &Server{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the client has gone
		}
		r.mu.Lock()
		r.requests = append(r.requests, Request{Path: req.URL.Path, Header: req.Header.Clone(), Body: string(body)})
		r.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if status >= http.StatusBadRequest {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Requests returns the requests so far, in order.
func (r *Server) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Last returns the last request. It panics if there is none.
func (r *Server) Last() Request {
	all := r.Requests()
	return all[len(all)-1]
}

// ReadRecording returns the content of a file in the folder testdata.
func ReadRecording(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name)) //nolint:gosec // the test names the file
	require.NoError(t, err)
	return string(data)
}
