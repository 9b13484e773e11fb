// Package gate provides a server that test agents call from inside their steps. With it a test stops a step at a
// known place, and counts the calls of models and tools.
package gate

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/turnctx"
)

// callTimeout is how long a call may take to arrive on a busy machine.
const callTimeout = 60 * time.Second

// Gate holds back the calls of agents. Each call has a key, and continues when the test opens that key. It is safe
// for concurrent use.
type Gate struct {
	URL string

	mu   sync.Mutex
	keys map[string]*keyState
}

// keyState is the state of one key.
type keyState struct {
	arrived     chan string   // instances, in the order of their calls
	open        chan struct{} // closed by Open
	modelCalls  int
	toolNotes   int // how often a tool reported the key
	isRepaired  bool
	callers     []string // see Callers
	credentials []string // see TurnCredentials
}

// New serves a gate until the test ends.
func New(t testing.TB) *Gate {
	t.Helper()
	g := &Gate{keys: map[string]*keyState{}}
	mux := http.NewServeMux()
	handle := func(path string, handler func(http.ResponseWriter, *http.Request, *keyState)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { handler(w, r, g.keyState(r.FormValue("key"))) })
	}
	handle("/hold", func(_ http.ResponseWriter, r *http.Request, l *keyState) {
		g.recordCaller(l, "tool", r)
		l.wait(r)
	})
	handle("/model", func(_ http.ResponseWriter, r *http.Request, l *keyState) {
		g.recordCaller(l, "model", r)
		g.mu.Lock()
		defer g.mu.Unlock()
		l.modelCalls++
	})
	handle("/panic", func(_ http.ResponseWriter, r *http.Request, l *keyState) { g.recordCaller(l, "tool", r) })
	handle("/note", func(_ http.ResponseWriter, _ *http.Request, l *keyState) {
		g.mu.Lock()
		defer g.mu.Unlock()
		l.toolNotes++
	})
	handle("/repaired", func(w http.ResponseWriter, r *http.Request, l *keyState) {
		g.mu.Lock()
		repaired := l.isRepaired
		g.mu.Unlock()
		if !repaired {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		l.wait(r)
	})
	server := httptest.NewServer(mux)
	g.URL = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return g
}

// wait reports that a call has arrived, and blocks it until its key is open or its caller disconnects.
func (k *keyState) wait(r *http.Request) {
	k.arrived <- r.FormValue("instance")
	select {
	case <-k.open:
	case <-r.Context().Done():
	}
}

func (g *Gate) keyState(key string) *keyState {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keys[key] == nil {
		g.keys[key] = &keyState{arrived: make(chan string, 16), open: make(chan struct{})}
	}
	return g.keys[key]
}

// recordCaller records whether a model or a tool calls, with the actor and the credentials that the call carries.
func (g *Gate) recordCaller(l *keyState, kind string, r *http.Request) {
	actor, credential, _ := r.BasicAuth()
	g.mu.Lock()
	defer g.mu.Unlock()
	l.callers = append(l.callers, strings.TrimSpace(kind+" "+actor+" "+credential))
	l.credentials = append(l.credentials, r.Header.Values(turnctx.CredentialKey)...)
}

// AwaitCall waits for the next call with the key and returns the instance that makes it. The call is held back.
func (g *Gate) AwaitCall(t testing.TB, key string) (instance string) {
	t.Helper()
	timer := time.NewTimer(callTimeout)
	defer timer.Stop()
	select {
	case instance = <-g.keyState(key).arrived:
	case <-timer.C:
		require.FailNow(t, "no call arrived at the gate", "with %s", key)
	}
	return instance
}

// Open lets all calls with the key continue, including later ones.
func (g *Gate) Open(key string) { close(g.keyState(key).open) }

// Repair makes steps with the key succeed that failed until now.
func (g *Gate) Repair(key string) {
	l := g.keyState(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	l.isRepaired = true
}

// ModelCalls returns how often models were called with the key.
func (g *Gate) ModelCalls(key string) int {
	l := g.keyState(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.modelCalls
}

// ToolNotes returns how often a tool reported the key to the gate.
func (g *Gate) ToolNotes(key string) int {
	l := g.keyState(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.toolNotes
}

// Callers returns the callers with a key, in order. Each entry says "model" or "tool", and contains the actor and
// the credential of the call, if any.
func (g *Gate) Callers(key string) []string {
	l := g.keyState(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(l.callers)
}

// TurnCredentials returns the turn credentials in the calls with a key, in order.
func (g *Gate) TurnCredentials(key string) []string {
	l := g.keyState(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(l.credentials)
}
