package llmtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/internal/llmreplay"
)

// Server is a fake provider whose answers a test chooses. It uses real HTTP and a provider's format. Tests of
// whole agents use it. It is safe for concurrent use.
type Server struct {
	URL string

	wire   Wire
	answer func(DecodedRequest) Reply

	mu       sync.Mutex
	requests []DecodedRequest
	bodies   []string
}

// NewServer starts a Server that runs until the test ends. It calls answer for each request, possibly from several
// goroutines at once. A request that is not in the provider's format fails the test.
func NewServer(t testing.TB, wire Wire, answer func(DecodedRequest) Reply) *Server {
	t.Helper()
	s := &Server{wire: wire, answer: answer}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(t, w, r) }))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// RepliesInOrder returns an answer function that returns the replies one after the other. After the last one it
// repeats that reply.
func RepliesInOrder(replies ...Reply) func(DecodedRequest) Reply {
	var mu sync.Mutex
	return func(DecodedRequest) Reply {
		mu.Lock()
		defer mu.Unlock()
		next := replies[0]
		if len(replies) > 1 {
			replies = replies[1:]
		}
		return next
	}
}

// Requests returns the requests so far, in order.
func (s *Server) Requests() []DecodedRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Bodies returns the bodies of the requests so far, in order.
func (s *Server) Bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

func (s *Server) serve(t testing.TB, response http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	asked, err := s.wire.DecodeRequest(r, body)
	if err != nil {
		t.Errorf("the server cannot read the request: %s\n%s", err, body)
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests, s.bodies = append(s.requests, asked), append(s.bodies, string(body))
	s.mu.Unlock()
	reply := s.answer(asked)
	if reply.ErrorStatus != 0 {
		response.WriteHeader(reply.ErrorStatus)
		_, _ = response.Write(s.wire.ErrorBody(reply.ErrorStatus, "", "refused"))
		return
	}
	stream, w := s.wire.Stream(reply), &llmreplay.Writer{ResponseWriter: response}
	w.SendEvents(stream.Begin...)
	for i, e := range stream.Body {
		if i == 1 && !reply.wait(r) {
			return
		}
		w.SendEvents(e)
	}
	w.SendEvents(stream.End...)
}

// wait waits until Hold is closed. It returns false if the client disconnects before.
func (r Reply) wait(req *http.Request) bool {
	if r.Hold == nil {
		return true
	}
	select {
	case <-r.Hold:
		return true
	case <-req.Context().Done():
		return false
	}
}
