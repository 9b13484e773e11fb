package mcptool

import (
	"context"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe/internal/egress"
)

// webTransport returns the transport to a server at a URL.
func (s *Server) webTransport() (t mcp.Transport, end func(), said func() string, err error) {
	u, err := url.Parse(s.config.URL)
	if err != nil {
		return nil, nil, nil, newConfigError("url: %s", err)
	}
	client, err := egress.New(egress.Config{
		Hosts:               []string{u.Hostname()},
		PlainHTTP:           []string{u.Hostname()}[:plainHTTPHostCount(u)],
		Ports:               []int{port(u)},
		AllowInnerAddresses: append(innerAddresses(u.Hostname()), s.config.AllowInnerAddresses...),
		MaxBodyBytes:        -1, // a server may stream for as long as it is connected
		Timeout:             -1,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	guarded := client.Transport
	client.Transport = &tokenTransport{next: guarded, origin: u, token: s.config.Token.Reveal()}
	c := &capturingTransport{Transport: &mcp.StreamableClientTransport{
		Endpoint: s.config.URL, HTTPClient: client, MaxEventSize: maxMessage, MaxRetries: streamRetries,
	}}
	return c, func() {
		c.closeConn()
		client.CloseIdleConnections()
	}, func() string { return "" }, nil
}

// streamRetries is how often a broken stream is resumed. The first interval is one second. After the last attempt,
// the calls that wait for a response in the stream fail.
const streamRetries = 2

func plainHTTPHostCount(u *url.URL) int {
	if u.Scheme == "http" {
		return 1
	}
	return 0
}

// innerAddresses returns the addresses that a configured host allows: the loopback networks for localhost, and the
// address itself for an IP address.
func innerAddresses(host string) []netip.Prefix {
	if host == "localhost" {
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap().WithZone("")
		return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
	}
	return nil
}

type statusKey struct{}

// withStatus returns a context and a holder. The holder receives the status of the last response to a request with
// that context. So a call can tell its own rejection from the rejection of another call in its session.
func withStatus(ctx context.Context) (context.Context, *atomic.Int64) {
	status := new(atomic.Int64)
	return context.WithValue(ctx, statusKey{}, status), status
}

// tokenTransport adds the token to requests. It limits the size of responses that are not streams.
type tokenTransport struct {
	next   http.RoundTripper
	origin *url.URL
	token  string
}

func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.token != "" && req.URL.Scheme == t.origin.Scheme && req.URL.Host == t.origin.Host {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if status, ok := req.Context().Value(statusKey{}).(*atomic.Int64); ok {
		status.Store(int64(resp.StatusCode))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxMessage)
	}
	return resp, nil
}

// CloseIdleConnections lets http.Client close the connections of the wrapped transport.
func (t *tokenTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// capturingTransport remembers the connection of its inner transport, so that the connection can be closed while
// the SDK still waits for it.
type capturingTransport struct {
	mcp.Transport

	mu     sync.Mutex
	conn   mcp.Connection
	closed bool
}

func (c *capturingTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := c.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.conn = conn
	ended := c.closed
	c.mu.Unlock()
	if ended {
		_ = conn.Close() // the next use of the connection reports it
	}
	return conn, nil
}

func (c *capturingTransport) closeConn() {
	c.mu.Lock()
	conn := c.conn
	c.closed = true
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // no caller could handle the error
	}
}
