// Package gate is a server that the agents of package slow and package clerk call from inside their
// steps. A test uses it to stop a step at a known place, and to count what models and tools did.
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

// Gate holds back the calls of agents until the test opens it for their key. It is safe for concurrent
// use.
type Gate struct {
	URL string

	mu    sync.Mutex
	locks map[string]*lock
}

// lock is the state of one key.
type lock struct {
	arrived     chan string   // instances, in the order of their calls
	open        chan struct{} // closed by Open
	modelCalls  int
	notes       int // of tools
	repaired    bool
	callers     []string // see Callers
	credentials []string // see TurnCredentials
}

// New serves a gate until the test ends.
func New(t testing.TB) *Gate {
	t.Helper()
	g := &Gate{locks: map[string]*lock{}}
	mux := http.NewServeMux()
	handle := func(path string, handler func(http.ResponseWriter, *http.Request, *lock)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { handler(w, r, g.lock(r.FormValue("key"))) })
	}
	handle("/hold", func(_ http.ResponseWriter, r *http.Request, l *lock) {
		g.recordCaller(l, "tool", r)
		l.wait(r)
	})
	handle("/model", func(_ http.ResponseWriter, r *http.Request, l *lock) {
		g.recordCaller(l, "model", r)
		g.mu.Lock()
		defer g.mu.Unlock()
		l.modelCalls++
	})
	handle("/panic", func(_ http.ResponseWriter, r *http.Request, l *lock) { g.recordCaller(l, "tool", r) })
	handle("/note", func(_ http.ResponseWriter, _ *http.Request, l *lock) {
		g.mu.Lock()
		defer g.mu.Unlock()
		l.notes++
	})
	handle("/repaired", func(w http.ResponseWriter, r *http.Request, l *lock) {
		g.mu.Lock()
		repaired := l.repaired
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

// wait holds a call back until the lock is open, or the caller has gone.
func (l *lock) wait(r *http.Request) {
	l.arrived <- r.FormValue("instance")
	select {
	case <-l.open:
	case <-r.Context().Done():
	}
}

func (g *Gate) lock(key string) *lock {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.locks[key] == nil {
		g.locks[key] = &lock{arrived: make(chan string, 16), open: make(chan struct{})}
	}
	return g.locks[key]
}

// recordCaller records the credentials that a call carries.
func (g *Gate) recordCaller(l *lock, kind string, r *http.Request) {
	actor, credential, _ := r.BasicAuth()
	g.mu.Lock()
	defer g.mu.Unlock()
	l.callers = append(l.callers, strings.TrimSpace(kind+" "+actor+" "+credential))
	l.credentials = append(l.credentials, r.Header.Values(turnctx.CredentialKey)...)
}

// AwaitCall returns the instance that calls next with a key and is held back.
func (g *Gate) AwaitCall(t testing.TB, key string) (instance string) {
	t.Helper()
	timer := time.NewTimer(callTimeout)
	defer timer.Stop()
	select {
	case instance = <-g.lock(key).arrived:
	case <-timer.C:
		require.FailNow(t, "no call arrived at the gate", "with %s", key)
	}
	return instance
}

// Open lets all calls with the key pass, those that come later too.
func (g *Gate) Open(key string) { close(g.lock(key).open) }

// Repair lets steps with the key succeed that failed before.
func (g *Gate) Repair(key string) {
	l := g.lock(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	l.repaired = true
}

// ModelCalls returns how often a model was called with a key.
func (g *Gate) ModelCalls(key string) int {
	l := g.lock(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.modelCalls
}

// Notes returns how often a tool noted a key.
func (g *Gate) Notes(key string) int {
	l := g.lock(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.notes
}

// Callers returns who called with a key, in order: "model" or "tool", with the actor and the credential
// that the call carried, if any.
func (g *Gate) Callers(key string) []string {
	l := g.lock(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(l.callers)
}

// TurnCredentials returns the credentials of turns that calls with a key carried, in order.
func (g *Gate) TurnCredentials(key string) []string {
	l := g.lock(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(l.credentials)
}
