package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Bounds limits how long a provider may take (CO-13). Zero values mean the defaults.
type Bounds struct {
	Connect   time.Duration // to connect, and again for TLS; default 20 s
	FirstByte time.Duration // from then to the head of the response; default 300 s
	Idle      time.Duration // between two pieces of a response; default 300 s
	Read      time.Duration // for the whole response; default 600 s
}

func (b Bounds) orDefault() Bounds {
	return Bounds{
		Connect:   cmp.Or(b.Connect, 20*time.Second),
		FirstByte: cmp.Or(b.FirstByte, 5*time.Minute),
		Idle:      cmp.Or(b.Idle, 5*time.Minute),
		Read:      cmp.Or(b.Read, 10*time.Minute),
	}
}

// NewHTTPClient returns an HTTP client that enforces the bounds. Adapters give it to the provider's SDK. A request
// that exceeds a bound fails with an error that names the bound. The client follows no redirects, because they
// would take the key to another server. It is safe for concurrent use, and keeps connections open for later
// requests.
func NewHTTPClient(b Bounds) *http.Client {
	b = b.orDefault()
	const (
		parallel = 64 // sessions of a busy worker that ask one provider at a time
		ping     = 15 * time.Second
	)
	return &http.Client{CheckRedirect: noRedirect, Transport: &boundedTransport{bounds: b, next: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: b.Connect}).DialContext,
		TLSHandshakeTimeout: b.Connect,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: parallel,
		IdleConnTimeout:     90 * time.Second,
		// Pings find a lost connection long before Idle.
		HTTP2: &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: ping},
	}}}
}

func noRedirect(req *http.Request, _ []*http.Request) error {
	return fmt.Errorf("the provider redirects to %s, which is not followed; use that address", req.URL.Host)
}

// maxRefusal limits how much of an error response is read, in bytes.
const maxRefusal = 64 << 10

// ReadRefusal reads the beginning of the body of an error response, and closes it.
func ReadRefusal(res *http.Response) []byte {
	defer res.Body.Close() //nolint:errcheck // it was read
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	return body
}

// boundedTransport is a transport that cancels requests that take too long.
type boundedTransport struct {
	bounds Bounds
	next   *http.Transport
}

// CloseIdleConnections lets http.Client close idle connections.
func (b *boundedTransport) CloseIdleConnections() { b.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (b *boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, give := context.WithCancelCause(req.Context())
	whole := time.AfterFunc(b.bounds.Read, func() { give(newTooSlowError("the whole answer", b.bounds.Read)) })
	first := time.AfterFunc(b.bounds.Connect+b.bounds.FirstByte, func() { give(newTooSlowError("the first byte", b.bounds.FirstByte)) })
	res, err := b.next.RoundTrip(req.WithContext(ctx))
	first.Stop()
	if err != nil {
		whole.Stop()
		err = causeOf(ctx, err)
		give(nil)
		return nil, err
	}
	idle := time.AfterFunc(b.bounds.Idle, func() { give(newTooSlowError("the next piece", b.bounds.Idle)) })
	idle.Stop()
	res.Body = &boundedBody{
		ReadCloser: res.Body, because: func(err error) error { return causeOf(ctx, err) },
		cancel: give, idle: idle, whole: whole, bound: b.bounds.Idle,
	}
	return res, nil
}

// boundedBody fails when a single read takes longer than the bound. Time between reads does not count.
type boundedBody struct {
	io.ReadCloser
	because     func(error) error // says why a read failed
	cancel      context.CancelCauseFunc
	idle, whole *time.Timer
	bound       time.Duration
	ended       bool // all was read, or it failed
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	b.idle.Reset(b.bound)
	n, err := b.ReadCloser.Read(p)
	b.idle.Stop()
	b.ended = b.ended || err != nil
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.because(err)
	}
	return n, err
}

// The end of the response usually comes right after the mark at which readers stop. A connection can be used again
// only after it was read.
const (
	tail     = 4 << 10
	tailTime = 10 * time.Millisecond
)

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	if !b.ended && b.because(nil) == nil {
		b.bound = tailTime
		_, _ = io.CopyN(io.Discard, b, tail)
	}
	err := b.ReadCloser.Close()
	b.idle.Stop()
	b.whole.Stop()
	b.cancel(nil)
	return err
}

// causeOf returns the cause with which the context of a request ended, instead of the error of the context.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func newTooSlowError(what string, bound time.Duration) error {
	return fmt.Errorf("%s did not come within %s", what, bound)
}
