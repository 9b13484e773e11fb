package egress_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/egress"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// A name is resolved only once, so it cannot resolve to an allowed address for the check and to an inner one for
// the connection.
func TestClient_ResistsDNSRebinding(t *testing.T) {
	w := newTestNetwork(t, http.HandlerFunc(serveRedirect))
	w.alternateAddresses("flip.test", publicAddress, innerAddress)
	client := w.restrictedClient(t)

	through := 0
	for range 20 {
		client.CloseIdleConnections() // or the second request would reuse the connection
		_, err := getBody(t, client, fmt.Sprintf("http://flip.test:%d/", w.port))
		if err == nil {
			through++
			continue
		}
		require.ErrorContains(t, err, ruleInnerAddress)
	}
	require.Positive(t, through, "the name never meant the allowed address")
	require.Less(t, through, 20, "the name never meant the inner address")
	require.EqualValues(t, through, w.publicRequests.Load())
	require.Zero(t, w.canaryRequests.Load())

	// If a name has both allowed and inner addresses, the client connects to an allowed one, whatever their order.
	w.setAddresses("both.test", innerAddress, publicAddress, "::1")
	for range 5 {
		client.CloseIdleConnections()
		body, err := getBody(t, client, fmt.Sprintf("http://both.test:%d/", w.port))
		if err == nil {
			require.Equal(t, "public page", body)
		}
	}
	require.Zero(t, w.canaryRequests.Load())
}

func TestClient_ContactsOnlyListedHosts(t *testing.T) {
	w := newTestNetwork(t, http.HandlerFunc(serveRedirect))
	for _, name := range []string{"a.listed.test", "b.a.listed.test", "listed.test", "notlisted.test", "exact.test", "below.exact.test"} {
		w.setAddresses(name, publicAddress)
	}
	client, err := egress.New(egress.Config{
		Hosts: []string{"*.Listed.test", "exact.test"}, PlainHTTP: []string{"*.listed.test"}, Ports: []int{w.port},
		AllowInnerAddresses: []netip.Prefix{netip.MustParsePrefix(publicAddress + "/32")}, Resolver: w.resolver,
	})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)

	for host, want := range map[string]string{
		"a.listed.test": "", "b.a.listed.test": "", "A.LISTED.TEST": "",
		"listed.test":      "the host listed.test is not allowed; hosts lists *.listed.test, exact.test",
		"notlisted.test":   "is not allowed",
		"below.exact.test": "is not allowed",
		publicAddress:      "the host 127.0.0.2 is not allowed",
		"exact.test":       "plain http is not allowed for exact.test; use https, or list it under plainHTTP",
	} {
		_, err := getBody(t, client, fmt.Sprintf("http://%s:%d/", host, w.port))
		if want == "" {
			require.NoError(t, err, host)
			continue
		}
		require.ErrorContains(t, err, want)
		require.True(t, failure.Is(err, failure.PolicyAllowlist), "%v", err)
	}
}

func TestClient_SendsNoCredentialsToAnotherHost(t *testing.T) {
	var got http.Header
	w := newTestNetwork(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		serveRedirect(rw, r)
	}))
	w.setAddresses("other.test", publicAddress)
	w.setAddresses("below.allowed.test", publicAddress)
	client := w.restrictedClient(t)
	ask := func(method, path string, body io.Reader) error {
		req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("http://allowed.test:%d%s", w.port, path), body)
		require.NoError(t, err)
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "Accept"} {
			req.Header.Set(name, "value")
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}

	require.NoError(t, ask(http.MethodGet, fmt.Sprintf("/302/http://allowed.test:%d/page", w.port), nil))
	require.Equal(t, "value", got.Get("X-Api-Key"), "the same host keeps it")
	for _, other := range []string{
		fmt.Sprintf("http://other.test:%d/", w.port),
		fmt.Sprintf("http://below.allowed.test:%d/", w.port),
		fmt.Sprintf("http://other.test:%d/302/http://other.test:%d/again", w.port, w.port),
	} {
		require.NoError(t, ask(http.MethodGet, "/302/"+other, nil))
		got.Del("Accept-Encoding")
		got.Del("User-Agent")
		require.Empty(t, cmp.Diff(http.Header{"Accept": {"value"}}, got), other)
	}
	err := ask(http.MethodPost, fmt.Sprintf("/307/http://other.test:%d/", w.port), strings.NewReader("secret"))
	require.ErrorContains(t, err, "redirects a request with a body to another host")
}

func TestClient_IgnoresProxies(t *testing.T) {
	w := newTestNetwork(t, http.HandlerFunc(serveRedirect))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, fmt.Sprintf("http://%s:%d", innerAddress, w.port))
	}
	body, err := getBody(t, w.restrictedClient(t), fmt.Sprintf("http://allowed.test:%d/", w.port))
	require.NoError(t, err)
	require.Equal(t, "public page", body)
	require.Zero(t, w.canaryRequests.Load())
}

func TestClient_LimitsTheResponse(t *testing.T) {
	w := newTestNetwork(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fits":
			_, _ = io.WriteString(rw, strings.Repeat("x", 1000))
		case "/bomb":
			rw.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(rw)
			_, _ = io.CopyN(zip, zeroReader{}, 1<<20)
			_ = zip.Close()
		case "/slow":
			_, _ = io.WriteString(rw, "x")
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(rw, strings.Repeat("x", 1001))
		}
	}))
	page := func(path string, timeout time.Duration) (string, error) {
		client, err := egress.New(egress.Config{
			Hosts: []string{"*"}, PlainHTTP: []string{"*"}, Ports: []int{w.port}, MaxBodyBytes: 1000, Timeout: timeout,
			AllowInnerAddresses: []netip.Prefix{netip.MustParsePrefix(publicAddress + "/32")}, Resolver: w.resolver,
		})
		require.NoError(t, err)
		defer client.CloseIdleConnections()
		return getBody(t, client, fmt.Sprintf("http://allowed.test:%d%s", w.port, path))
	}
	body, err := page("/fits", time.Minute)
	require.NoError(t, err)
	require.Len(t, body, 1000)
	for _, path := range []string{"/long", "/bomb"} {
		body, err = page(path, time.Minute)
		require.ErrorContains(t, err, "the answer has more than 1000 bytes")
		require.True(t, failure.Is(err, failure.ResourceQuota))
		require.Len(t, body, 1000)
	}
	_, err = page("/slow", 300*time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestClient_RejectsAnotherHostHeader(t *testing.T) {
	w := newTestNetwork(t, http.HandlerFunc(serveRedirect))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://allowed.test:%d/", w.port), nil)
	require.NoError(t, err)
	req.Host = "inside.test"
	_, err = w.restrictedClient(t).Do(req) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, `the Host header is "inside.test"`)
}

func TestNew_RejectsInvalidSettings(t *testing.T) {
	prefix := netip.MustParsePrefix
	for want, c := range map[string]egress.Config{
		"hosts is missing":                         {},
		`hosts[0] is "https://example.com"`:        {Hosts: []string{"https://example.com"}},
		`hosts[0] is "example.com:443"`:            {Hosts: []string{"example.com:443"}},
		`hosts[1] is "*example.com"`:               {Hosts: []string{"a.test", "*example.com"}},
		`hosts[0] is ""`:                           {Hosts: []string{""}},
		`plainHTTP[0] is "127.1"`:                  {Hosts: []string{"*"}, PlainHTTP: []string{"127.1"}},
		"ports[0] is 70000; use 1 to 65535":        {Hosts: []string{"*"}, Ports: []int{70000}},
		"allowInnerAddresses[0] is 0.0.0.0/0":      {Hosts: []string{"*"}, AllowInnerAddresses: []netip.Prefix{prefix("0.0.0.0/0")}},
		"allowInnerAddresses[0] is ::/0":           {Hosts: []string{"*"}, AllowInnerAddresses: []netip.Prefix{prefix("::/0")}},
		"allowInnerAddresses[0] is invalid Prefix": {Hosts: []string{"*"}, AllowInnerAddresses: []netip.Prefix{{}}},
	} {
		_, err := egress.New(c)
		require.ErrorContains(t, err, want)
		require.True(t, failure.Is(err, failure.UserInvalidInput))
	}
}
