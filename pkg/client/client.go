// Package client is the Go client of an orchestrator. Its errors are failure.Errors, as the server returned them.
package client

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/jitter"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Client sends requests to the orchestrator at one address. It embeds the generated clients, which provide the
// unary methods. It is safe for concurrent use.
type Client struct {
	troupev1.OrchestratorServiceClient
	Sessions troupev1.SessionServiceClient

	patience   time.Duration // how long the client resumes a stream without progress
	notifyWait func(error, time.Duration)
}

// New returns a client that uses conn. The caller closes conn.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{
		OrchestratorServiceClient: troupev1.NewOrchestratorServiceClient(conn),
		Sessions:                  troupev1.NewSessionServiceClient(conn), patience: defaultPatience,
	}
}

// WithWaitNotice returns a client that calls notify each time before it waits because an orchestrator rejected a
// turn as overloaded. notify gets the rejection and the delay. Calls for the same Turn do not overlap.
func (c *Client) WithWaitNotice(notify func(rejection error, d time.Duration)) *Client {
	other := *c
	other.notifyWait = notify
	return &other
}

// defaultPatience is how long a client waits for progress. It is longer than the restart of an orchestrator, and
// longer than the lease of 30 s that a killed orchestrator leaves behind.
const defaultPatience = 45 * time.Second

// firstPatience is how long a client waits for an address that has never responded, because the address may be
// wrong.
const firstPatience = 3 * time.Second

// Turn sends one user input, a text or answers to pending calls, and yields the events of its trace up to the turn result.
//
// Turn resumes a stream that breaks, or that the server ends because its consumer is slow. It resumes where the stream
// stopped, without gaps or repeats; only text deltas since the last event with a sequence may be lost or repeated. The
// result of a step has its whole text. A text_retracted event says that the text deltas of its step so far are void. If
// no orchestrator drives the turn any more, Turn sends the request again,
// which makes another orchestrator take the turn over. Turn gives up with ctx, 45 s after the first break without
// progress, and after 3 s if the server never answered. It fails at once with policy_security when either side
// rejects the certificate of the other before the request is sent.
//
// A request that is rejected as overloaded is sent again after the delay that the rejection names and up to a quarter more,
// at most 3 times, and not if ctx would end before. Then the rejection is the error.
//
// A repeated request carries the auth of the first. It is kept until then, and is never part of an error.
//
// Turn sets session_id and request_id if they are empty, so that resuming is safe from the first byte on. An error is the
// last item. Before any event it means that nothing was admitted, unless its mode is system_network, system_timeout or
// trace_orphaned.
func (c *Client) Turn(ctx context.Context, req *troupev1.OrchestrateRequest) iter.Seq2[*troupev1.Event, error] {
	if req.GetSessionId() == "" && (req.GetFrom() == nil || req.GetFrom().GetFork()) { // otherwise the trace names the session
		req.SessionId = uuid.NewString()
	}
	if req.GetRequestId() == "" {
		req.RequestId = uuid.NewString()
	}
	return c.resumeStream(ctx, &troupev1.WatchTraceRequest{OnDisconnect: req.GetOnDisconnect()}, func(ctx context.Context) (stream, error) {
		s, err := c.Orchestrate(ctx, req)
		if err != nil {
			return nil, err
		}
		return func() (*troupev1.Event, error) { r, err := s.Recv(); return r.GetEvent(), err }, nil
	})
}

// Watch yields the events of a trace with a sequence above after, up to the turn result. It resumes a broken
// stream as Turn does. It cannot cause a takeover, so it ends with trace_orphaned if no orchestrator drives the
// turn.
func (c *Client) Watch(ctx context.Context, traceID string, after uint64) iter.Seq2[*troupev1.Event, error] {
	return c.resumeStream(ctx, &troupev1.WatchTraceRequest{TraceId: traceID, AfterSequence: after}, nil)
}

// isCertificateRejected reports whether the TLS handshake failed because one side rejected the certificate of the
// other.
func isCertificateRejected(err error) bool {
	kind, reason := grpcfailure.ClassifyDialError(err)
	return (kind == grpcfailure.DialUntrusted || kind == grpcfailure.DialRejected) && strings.Contains(reason, "tls: ")
}

// maxRetries limits how often the client repeats a rejected request, so that an overloaded mesh does not spend its
// time on rejecting requests.
const maxRetries = 3

// waitToRetry waits for the delay that a rejection requests. It returns false if err requests no delay, or if ctx
// ends before the delay is over.
func (c *Client) waitToRetry(ctx context.Context, err error) bool {
	after, ok := failure.RetryAfter(err)
	if !ok || !failure.Is(err, failure.Overloaded, failure.PolicyRateLimit) {
		return false
	}
	after += jitter.Below(after/4 + 1) // it spreads the retries of clients that were rejected together
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= after {
		return false
	}
	if c.notifyWait != nil {
		c.notifyWait(err, after)
	}
	return retry.Sleep(ctx, after) == nil
}
