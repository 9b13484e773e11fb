package rig

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

// Gate holds the steps of slow agents until a test lets them go, and counts what they do.
type Gate struct {
	URL string

	mu    sync.Mutex
	locks map[string]*lock
}

// lock is what is known of one key.
type lock struct {
	came  chan string   // instances, in the order in which they came
	open  chan struct{} // closed by Open
	asked int           // model calls
	noted int           // that a tool made
	whole bool          // what broke is mended
	shown []string      // by models and tools
	turns []string      // credentials of turns, shown by them too
}

// NewGate serves a gate until the test ends.
func NewGate(t testing.TB) *Gate {
	t.Helper()
	g := &Gate{locks: map[string]*lock{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) {
		l := g.at(r.FormValue("key"))
		g.look(l, "tool", r)
		l.came <- r.FormValue("instance")
		select {
		case <-l.open:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/model", func(_ http.ResponseWriter, r *http.Request) {
		l := g.at(r.FormValue("key"))
		g.look(l, "model", r)
		g.mu.Lock()
		defer g.mu.Unlock()
		l.asked++
	})
	mux.HandleFunc("/blow", func(_ http.ResponseWriter, r *http.Request) { g.look(g.at(r.FormValue("key")), "tool", r) })
	mux.HandleFunc("/note", func(_ http.ResponseWriter, r *http.Request) {
		l := g.at(r.FormValue("key"))
		g.mu.Lock()
		defer g.mu.Unlock()
		l.noted++
	})
	mux.HandleFunc("/mended", func(w http.ResponseWriter, r *http.Request) {
		l := g.at(r.FormValue("key"))
		g.mu.Lock()
		whole := l.whole
		g.mu.Unlock()
		if !whole {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		l.came <- r.FormValue("instance")
		select {
		case <-l.open:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	g.URL = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return g
}

func (g *Gate) at(key string) *lock {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.locks[key] == nil {
		g.locks[key] = &lock{came: make(chan string, 16), open: make(chan struct{})}
	}
	return g.locks[key]
}

// look records the credential of a caller.
func (g *Gate) look(l *lock, who string, r *http.Request) {
	actor, credential, _ := r.BasicAuth()
	g.mu.Lock()
	defer g.mu.Unlock()
	l.shown = append(l.shown, strings.TrimSpace(who+" "+actor+" "+credential))
	l.turns = append(l.turns, r.Header.Values(turnctx.CredentialKey)...)
}

// Mend ends what makes steps with a key fail.
func (g *Gate) Mend(key string) {
	l := g.at(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	l.whole = true
}

// Noted is how often a tool noted a key.
func (g *Gate) Noted(key string) int {
	l := g.at(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.noted
}

// Shown is what came to the gate with a key, in order: model or tool, and whom and which
// credential it showed, if any.
func (g *Gate) Shown(key string) []string {
	l := g.at(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(l.shown)
}

// Turns are the credentials of turns that came to the gate with a key, in order.
func (g *Gate) Turns(key string) []string {
	l := g.at(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(l.turns)
}

// Await returns the instance that comes to the gate with a key next.
func (g *Gate) Await(t testing.TB, key string) (instance string) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case instance = <-g.at(key).came:
	case <-timer.C:
		require.FailNow(t, "no call arrived at the gate", "with %s", key)
	}
	return instance
}

// Open lets all with the key go, those that are still to come too.
func (g *Gate) Open(key string) { close(g.at(key).open) }

// Asked is how often a model was asked about a key.
func (g *Gate) Asked(key string) int {
	l := g.at(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.asked
}
