// Package client is the Go client of the mesh: what cmd/troupe and programs use to talk to
// an orchestrator. Errors are failure.Errors, as the server returned them.
package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Client talks to one orchestrator address. Safe for concurrent use. The unary methods are
// those of the generated clients.
type Client struct {
	troupev1.OrchestratorServiceClient
	Sessions troupev1.SessionServiceClient

	patience time.Duration // for how long a stream is taken up again without progress
	waiting  func(error, time.Duration)
}

// New returns a client over a connection that the caller closes.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{OrchestratorServiceClient: troupev1.NewOrchestratorServiceClient(conn), Sessions: troupev1.NewSessionServiceClient(conn), patience: patience}
}

// Waiting returns a client that calls tell before it waits because an orchestrator refused a
// turn with overloaded: with the refusal, and for how long. Calls of one Turn do not overlap.
func (c *Client) Waiting(tell func(refusal error, d time.Duration)) *Client {
	other := *c
	other.waiting = tell
	return &other
}

// patience outlasts the restart of an orchestrator, and the lease of 30 s that one leaves
// behind that was killed.
const patience = 45 * time.Second

// firstPatience is for an address that never answered: it may be a wrong one.
const firstPatience = 3 * time.Second

// Turn sends one user input, a text or answers to calls that wait, and yields the events of its trace, from the first to the turn
// result. A stream that breaks off, or that the server ends because its consumer is slow, is
// taken up where it stopped, without a gap and without a repeat; text deltas of the break
// are lost. A text_retracted says that the text deltas of its step so far are void. When nobody
// drives the turn any more the request is sent again, which takes the turn over. It is given
// up when nothing new came for 45 s since the first break, 3 s when nothing ever came, and
// with ctx; at once with policy_security when a certificate is refused before anything was sent, be it
// that of the mesh or the one shown to it.
//
// A request that is refused with overloaded is sent again after the time that the refusal names
// and up to a quarter more, at most 3 times, and not when ctx would end before. Then the
// refusal is the error.
//
// A request that is sent again carries the auth of the first. It is kept until then, and never
// part of an error.
//
// It makes session_id and request_id when there are none, so that taking up is safe from the
// first byte on. An error is the last item: before any event it means that nothing was
// admitted, unless its mode is system_network, system_timeout or trace_orphaned.
func (c *Client) Turn(ctx context.Context, req *troupev1.OrchestrateRequest) iter.Seq2[*troupev1.Event, error] {
	if req.GetSessionId() == "" && (req.GetFrom() == nil || req.GetFrom().GetFork()) { // else it is that of the trace
		req.SessionId = uuid.NewString()
	}
	if req.GetRequestId() == "" {
		req.RequestId = uuid.NewString()
	}
	return c.resuming(ctx, "", 0, func(ctx context.Context) (stream, error) {
		s, err := c.Orchestrate(ctx, req)
		if err != nil {
			return nil, err
		}
		return func() (*troupev1.Event, error) { r, err := s.Recv(); return r.GetEvent(), err }, nil
	})
}

// Watch yields the events of a trace above after, up to the turn result. It resumes as
// Turn does; but it cannot take a turn over, and ends with trace_orphaned.
func (c *Client) Watch(ctx context.Context, traceID string, after uint64) iter.Seq2[*troupev1.Event, error] {
	return c.resuming(ctx, traceID, after, nil)
}

// stream is the receiving end of either call.
type stream func() (*troupev1.Event, error)

// resuming opens a trace with open, and goes on with WatchTrace once it knows the trace.
func (c *Client) resuming(ctx context.Context, traceID string, after uint64, open func(context.Context) (stream, error)) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		from := after
		pace := retry.NewBackoff()
		var broken time.Time // when it broke off first since the last progress; zero: it did not
		orphaned, answered, unsent, refused := false, false, true, 0
		for {
			connect := open
			if traceID != "" && !orphaned {
				connect = func(ctx context.Context) (stream, error) { return c.watch(ctx, traceID, after) }
			}
			began := time.Now()
			progress, done, err := consume(ctx, connect, &traceID, &after, yield)
			if done || err == nil && open == nil && after == from {
				return // a trace that had ended at after has nothing to add
			}
			_, stopped := errors.AsType[unopened](err)
			if unsent = unsent && stopped; unsent && refuses(err) {
				yield(nil, failure.New(failure.PolicySecurity, "client", "the mesh is not trusted, or does not trust who calls; nothing was sent").Because(err))
				return
			}
			if err == nil {
				err = failure.New(failure.SystemNetwork, "client", "the stream ended before the turn did; send the request again with its session_id and request_id")
			}
			if after == from && refused < maxRefusals && c.askLater(ctx, err) {
				refused++
				broken = time.Time{}
				continue
			}
			if progress || time.Since(began) >= c.patience { // a stream that held so long was none that failed
				broken = time.Time{}
				pace.Reset()
			}
			if broken.IsZero() {
				broken = time.Now()
			}
			orphaned = open != nil && failure.Is(err, failure.TraceOrphaned)
			answered = answered || orphaned || after != from
			limit := c.patience
			if !answered {
				limit = min(limit, firstPatience)
			}
			again := orphaned || failure.Is(err, failure.SystemNetwork, failure.SlowConsumer)
			if !again || time.Since(broken) >= limit || pace.Wait(ctx) != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// unopened is why a stream was not opened: the server has no request.
type unopened struct{ error }

// Unwrap returns what gRPC said.
func (u unopened) Unwrap() error { return u.error }

// refuses reports whether no connection was made because a certificate was refused, of either side.
func refuses(err error) bool {
	missed, why := grpcfailure.ClassifyDial(err)
	return (missed == grpcfailure.DialUntrusted || missed == grpcfailure.DialRejected) && strings.Contains(why, "tls: ")
}

// maxRefusals is how many times a refused request is sent again: a mesh that is overloaded has
// to do something else than to refuse the same.
const maxRefusals = 3

// askLater waits for as long as a refusal says. It is false when err is none, or ctx ends
// before the next try.
func (c *Client) askLater(ctx context.Context, err error) bool {
	after, ok := failure.RetryAfter(err)
	if !ok || !failure.Is(err, failure.Overloaded, failure.PolicyRateLimit) {
		return false
	}
	after += rand.N(after/4 + 1) //nolint:gosec // no secret: so that those who were refused together do not come together
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= after {
		return false
	}
	if c.waiting != nil {
		c.waiting(err, after)
	}
	return retry.Sleep(ctx, after) == nil
}

func (c *Client) watch(ctx context.Context, traceID string, after uint64) (stream, error) {
	s, err := c.WatchTrace(ctx, &troupev1.WatchTraceRequest{TraceId: traceID, AfterSequence: after})
	if err != nil {
		return nil, err
	}
	return func() (*troupev1.Event, error) { r, err := s.Recv(); return r.GetEvent(), err }, nil
}

// consume hands on what one stream brings. Done means that the turn result was handed on,
// or that the consumer wants no more. Without an error the stream ended by itself.
func consume(ctx context.Context, connect func(context.Context) (stream, error), traceID *string, after *uint64, yield func(*troupev1.Event, error) bool) (progress, done bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	recv, err := connect(ctx)
	if err != nil {
		return false, false, grpcfailure.FromStatus("client", unopened{err})
	}
	for err == nil {
		var e *troupev1.Event
		if e, err = recv(); errors.Is(err, io.EOF) {
			return progress, false, nil
		} else if err != nil {
			break
		}
		*traceID = e.GetTraceId()
		if s := e.GetSequence(); s > 0 {
			if s <= *after {
				continue // the call was sent again before it was known where to go on
			}
			*after, progress = s, true
		}
		if !yield(e, nil) || e.GetTurnResult() != nil {
			return progress, true, nil
		}
	}
	return progress, false, grpcfailure.FromStatus("client", err)
}
