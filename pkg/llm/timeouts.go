package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/troupe-dev/troupe/internal/eventstream"
)

// Timeouts limits how long an adapter waits for its provider (CO-13). Zero values mean the defaults.
type Timeouts struct {
	Connect   time.Duration // for connecting, and again for the TLS handshake (0 means 20 s)
	FirstByte time.Duration // from then until the header of the response (0 means 300 s)
	Idle      time.Duration // between two pieces of a response (0 means 300 s)
	Read      time.Duration // for the whole response (0 means 600 s)
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Connect:   cmp.Or(t.Connect, 20*time.Second),
		FirstByte: cmp.Or(t.FirstByte, 5*time.Minute),
		Idle:      cmp.Or(t.Idle, 5*time.Minute),
		Read:      cmp.Or(t.Read, 10*time.Minute),
	}
}

// NewHTTPClient returns an HTTP client that enforces the timeouts. Adapters use it directly or pass it to the provider's
// SDK. A request that exceeds a timeout fails with an error that names the timeout. The client follows no redirects,
// because it would send the key to another server. Streams of server-sent events reach the adapter without comments, with
// line feeds as the only line ends, and without characters that are split over two events. The client is safe for
// concurrent use, and keeps connections open for later requests.
func NewHTTPClient(t Timeouts) *http.Client {
	t = t.withDefaults()
	const (
		parallel = 64 // sessions of a busy worker that call one provider concurrently
		ping     = 15 * time.Second
	)
	return &http.Client{CheckRedirect: rejectRedirect, Transport: &timeoutTransport{timeouts: t, next: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: t.Connect}).DialContext,
		TLSHandshakeTimeout: t.Connect,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: parallel,
		IdleConnTimeout:     90 * time.Second,
		// Pings detect a lost connection long before the Idle timeout.
		HTTP2: &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: ping},
	}}}
}

func rejectRedirect(req *http.Request, _ []*http.Request) error {
	return fmt.Errorf("the provider redirects to %s, which is not followed; use that address", req.URL.Host)
}

// maxErrorBody limits how much of an error response is read, in bytes.
const maxErrorBody = 64 << 10

// ReadErrorBody reads the first 64 KiB of the body of an error response, and closes the body.
func ReadErrorBody(res *http.Response) []byte {
	defer res.Body.Close() //nolint:errcheck // it was read
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	return body
}

// timeoutTransport is an http.RoundTripper that cancels requests that exceed the timeouts.
type timeoutTransport struct {
	timeouts Timeouts
	next     *http.Transport
}

// CloseIdleConnections lets http.Client close idle connections.
func (t *timeoutTransport) CloseIdleConnections() { t.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (t *timeoutTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, give := context.WithCancelCause(req.Context())
	whole := time.AfterFunc(t.timeouts.Read, func() { give(newTooSlowError("the whole answer", t.timeouts.Read)) })
	first := time.AfterFunc(t.timeouts.Connect+t.timeouts.FirstByte, func() { give(newTooSlowError("the first byte", t.timeouts.FirstByte)) })
	res, err := t.next.RoundTrip(req.WithContext(ctx))
	first.Stop()
	if err != nil {
		whole.Stop()
		err = causeOr(ctx, err)
		give(nil)
		return nil, err
	}
	idle := time.AfterFunc(t.timeouts.Idle, func() { give(newTooSlowError("the next piece", t.timeouts.Idle)) })
	idle.Stop()
	res.Body = &boundedBody{
		ReadCloser: res.Body, cancelCause: func(err error) error { return causeOr(ctx, err) },
		cancel: give, idleTimer: idle, totalTimer: whole, readTimeout: t.timeouts.Idle,
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); res.StatusCode < http.StatusBadRequest && kind != "application/json" {
		res.Body = eventstream.New(res.Body)
	}
	return res, nil
}

// boundedBody is a response body that fails when a single Read takes too long. The time between two reads does not
// count.
type boundedBody struct {
	io.ReadCloser
	cancelCause           func(error) error // returns the cause of the cancellation, or the given error
	cancel                context.CancelCauseFunc
	idleTimer, totalTimer *time.Timer
	readTimeout           time.Duration
	done                  bool // the whole body was read, or a read failed
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	b.idleTimer.Reset(b.readTimeout)
	n, err := b.ReadCloser.Read(p)
	b.idleTimer.Stop()
	b.done = b.done || err != nil
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.cancelCause(err)
	}
	return n, err
}

// Close reads this much more, for this long, if the reader stopped before the end of the response. Readers often
// stop at an end mark just before the real end, and a connection can only be reused if the response was read
// completely.
const (
	maxDrainBytes = 4 << 10
	drainTimeout  = 10 * time.Millisecond
)

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	if !b.done && b.cancelCause(nil) == nil {
		b.readTimeout = drainTimeout
		_, _ = io.CopyN(io.Discard, b, maxDrainBytes)
	}
	err := b.ReadCloser.Close()
	b.idleTimer.Stop()
	b.totalTimer.Stop()
	b.cancel(nil)
	return err
}

// causeOr returns the cause with which ctx was cancelled, or err if ctx was not cancelled.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func newTooSlowError(what string, bound time.Duration) error {
	return fmt.Errorf("%s did not come within %s", what, bound)
}
