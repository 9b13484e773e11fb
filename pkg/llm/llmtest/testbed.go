package llmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/llmreplay"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

const (
	key       = "what-only-the-provider-may-know" // must not appear in any error
	modelName = "test-large"                      // name of the model without the prefix
	patience  = 20 * time.Second                  // longest wait for what should happen at once
)

// responder writes the response of the server to one request.
type responder func(rig *testbed, w *llmreplay.Writer, r *http.Request)

// testbed runs a server in the provider's format for one test.
type testbed struct {
	*testing.T
	Provider
	url         string
	disconnects chan struct{} // gets a value when a client disconnects before its response is complete

	mu         sync.Mutex
	responders []responder
	received   []DecodedRequest
	bodies     []string
}

func newTestbed(t *testing.T, p Provider) *testbed {
	rig := &testbed{T: t, Provider: p, disconnects: make(chan struct{}, 16)}
	server := httptest.NewServer(http.HandlerFunc(rig.serve))
	t.Cleanup(server.Close)
	rig.url = server.URL
	return rig
}

// serve records the request and calls the next responder. The last responder is used again and again.
func (t *testbed) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	asked, err := t.Wire.DecodeRequest(r, body)
	if err != nil {
		t.Errorf("the server cannot read the request: %s\n%s", err, body)
	}
	t.mu.Lock()
	t.received = append(t.received, asked)
	t.bodies = append(t.bodies, string(body))
	next := t.responders[0]
	if len(t.responders) > 1 {
		t.responders = t.responders[1:]
	}
	t.mu.Unlock()
	next(t, &llmreplay.Writer{ResponseWriter: w}, r)
}

// requests returns the decoded requests and their bodies so far.
func (t *testbed) requests() ([]DecodedRequest, []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.received), slices.Clone(t.bodies)
}

// open returns the adapter's model, connected to a server with these responders.
func (t *testbed) open(timeouts llm.Timeouts, answers ...responder) llm.Model {
	t.Helper()
	t.responders = answers
	m, err := t.Open(t.Name+"/"+modelName, t.url, key, timeouts)
	require.NoError(t, err)
	return m
}

// awaitDisconnect waits until the server sees that a client has disconnected.
func (t *testbed) awaitDisconnect() {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.disconnects:
	case <-timer.C:
		require.FailNow(t, "the server did not see that the client disconnected")
	}
}

// ask sends a request and reads the whole answer. It calls heard with each delta, unless heard is nil, and stops
// when heard returns false.
func (t *testbed) ask(ctx context.Context, m llm.Model, req llm.Request, heard func(llm.Delta) bool) (all Answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for d, err := range m.Generate(ctx, req) {
		require.NoError(t, all.Err, "the error was not the last item")
		if err != nil {
			t.requireNoKey(err)
		}
		require.Zero(t, d.Usage.ModelCalls, "a model must not count its calls")
		if d.Finish != "" {
			require.Empty(t, all.Finish, "an answer ends once")
		}
		all.Add(d, err)
		if heard != nil && err == nil && !heard(d) {
			break
		}
	}
	return all
}

// askHello sends a request with one user message and reads the whole answer.
func (t *testbed) askHello(m llm.Model) Answer {
	t.Helper()
	return t.ask(t.Context(), m, hello, nil)
}

// hello is a request with one user message.
var hello = llm.Request{Messages: []conversation.Message{conversation.User("hello")}}

// requireNoKey checks that no printed form of an error contains the key.
func (t *testbed) requireNoKey(err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, form := range []string{"%v", "%+v", "%#v"} {
			require.NotContains(t, fmt.Sprintf(form, e), key)
		}
	}
	if f, ok := errors.AsType[*failure.Error](err); ok {
		require.NotContains(t, fmt.Sprint(f.Message, f.Facts), key)
	}
}

// requireFailure checks the kind, the mode and the facts of an error.
func (t *testbed) requireFailure(err error, kind llm.Kind) llm.Error {
	t.Helper()
	require.Error(t, err)
	f, ok := errors.AsType[*failure.Error](err)
	require.True(t, ok, "not a failure: %v", err)
	e, ok := errors.AsType[*llm.Error](err)
	require.True(t, ok, "no llm.Error in its chain: %v", err)
	require.Equal(t, kind, e.Kind, "%v", err)
	require.Equal(t, t.Name, e.Provider)
	require.Equal(t, map[string]string{"kind": string(kind), "provider": t.Name},
		map[string]string{"kind": f.Facts["kind"], "provider": f.Facts["provider"]})
	require.Contains(t, f.Message, modelName)
	require.NotEqual(t, failure.Unknown, f.Mode)
	require.Equal(t, kind.Retryable(), f.Mode == failure.ResourceAPI && kind != llm.Malformed, "mode %s of kind %s", f.Mode, kind)
	return *e
}

// hangUntilDisconnect waits until the client disconnects or the test ends.
func (t *testbed) hangUntilDisconnect(r *http.Request) {
	select {
	case <-r.Context().Done():
		t.disconnects <- struct{}{}
	case <-t.Context().Done():
	}
}

// allEvents returns all events of a stream in one list.
func allEvents(s Stream) [][]byte { return slices.Concat(s.Begin, s.Body, s.End) }

// respond returns a responder that sends a whole stream.
func respond(r Reply) responder {
	return func(rig *testbed, w *llmreplay.Writer, _ *http.Request) {
		w.SendEvents(allEvents(rig.Wire.Stream(r))...)
	}
}
