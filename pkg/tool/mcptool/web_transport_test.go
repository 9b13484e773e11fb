package mcptool_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/pkg/tool/mcptool"
)

var innerAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}

// testSite is an HTTP server whose MCP server can be replaced while it runs.
type testSite struct {
	*httptest.Server

	server  *mcp.Server
	handler atomic.Pointer[http.Handler]
	token   atomic.Pointer[string]
}

func newSite(t *testing.T) *testSite {
	t.Helper()
	s := &testSite{server: newServer()}
	s.restart()
	t.Cleanup(s.closeSessions)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("Authorization")
		s.token.Store(&token)
		(*s.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// restart drops all sessions and serves a new MCP server.
func (s *testSite) restart() {
	s.closeSessions()
	server := newServer()
	s.server = server
	s.setHandler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
}

func (s *testSite) closeSessions() {
	for session := range s.server.Sessions() {
		_ = session.Close()
	}
}

func (s *testSite) setHandler(h http.Handler) { s.handler.Store(&h) }

func TestURL_ServerGetsTheToken(t *testing.T) {
	s := newSite(t)
	a := startTools(t, mcptool.Config{URL: s.URL, Token: secret.New("s3cret"), Tools: []string{"add", "key", "long", "change"}, Prefix: "web_"})
	require.Equal(t, "3", a.mustCall("web_add", `{"a": 1, "b": 2}`))
	require.Equal(t, "Bearer s3cret", *s.token.Load())
	text, err := a.callWithContext(tool.ContextWithIdempotencyKey(t.Context(), "k"), "web_key", ``)
	require.NoError(t, err)
	require.Equal(t, "k", text)
	require.Contains(t, a.mustCall("web_long", `{"a": 200000}`), "cut")
	a.mustCall("web_change", `{"a": 0}`)
	a.awaitLog("the server no longer offers a tool")
}

func TestURL_ReconnectsAfterARestart(t *testing.T) {
	s := newSite(t)
	a := startTools(t, mcptool.Config{URL: s.URL, Tools: []string{"add", "fail"}})
	for range 2 {
		require.Equal(t, "1", a.mustCall("add", `{"a": 1}`))
		s.restart()
	}
	s.setHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	_, err := a.call("fail", `{"a": 1}`)
	require.Error(t, err)
	require.False(t, failure.Is(err, failure.UnknownOutcome), "%v", err)
	s.restart()
	require.Eventually(t, func() bool {
		text, err := a.call("add", `{"a": 1}`)
		return err == nil && text == "1"
	}, waitTimeout, 50*time.Millisecond)
}

func TestURL_LostServerGivesUnknownOutcome(t *testing.T) {
	s := newSite(t)
	a := startTools(t, mcptool.Config{URL: s.URL, Tools: []string{"hang", "add"}})
	whole := *s.handler.Load()
	s.setHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			whole.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	_, err := a.call("hang", ``)
	require.True(t, failure.Is(err, failure.UnknownOutcome), "%v", err)
	s.setHandler(whole)
	require.Equal(t, "1", a.mustCall("add", `{"a": 1}`))
}

func TestURL_ReachesNoOtherHost(t *testing.T) {
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	t.Cleanup(thief.Close)
	s := newSite(t)
	s.setHandler(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	address, err := url.Parse(s.URL)
	require.NoError(t, err)
	for _, u := range []string{s.URL, "http://localhost:" + address.Port()} {
		server, err := mcptool.New(mcptool.Config{URL: u, Token: secret.New("s3cret"), Tools: []string{"add"}})
		require.NoError(t, err)
		err = server.Tools()[0].(tool.Starter).Start(t.Context())
		require.ErrorContains(t, err, "did not start")
		require.NotContains(t, err.Error(), "s3cret")
	}
	require.Zero(t, stolen.Load())
}

func TestURL_UnresponsiveServerTimesOut(t *testing.T) {
	s := newSite(t)
	s.setHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-t.Context().Done():
		}
	}))
	server, err := mcptool.New(mcptool.Config{URL: s.URL, Tools: []string{"add"}, StartTimeout: 300 * time.Millisecond})
	require.NoError(t, err)
	began := time.Now()
	require.ErrorContains(t, server.Tools()[0].(tool.Starter).Start(t.Context()), "did not start within 300ms")
	require.Less(t, time.Since(began), 10*time.Second)
}
