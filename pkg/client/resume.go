package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// stream receives the next event of an Orchestrate or WatchTrace call.
type stream func() (*troupev1.Event, error)

// resumeStream calls open to open the stream of a trace, or begins with watch if open is nil. Once it knows the trace
// id, it resumes a broken stream with WatchTrace.
func (c *Client) resumeStream(
	ctx context.Context, watch *troupev1.WatchTraceRequest, open func(context.Context) (stream, error),
) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r := resumption{client: c, open: open, position: proto.CloneOf(watch), from: watch.GetAfterSequence(), pace: retry.NewBackoff()}
		for {
			began := time.Now()
			progress, done, err := forwardStream(ctx, r.connect, r.position, yield)
			if done || err == nil && open == nil && !r.hasEvents() {
				return // the trace has no events after this sequence
			}
			if err := r.waitAfterBreak(ctx, progress, began, err); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// resumption is how far a client has read a trace, and what it knows of the breaks since.
type resumption struct {
	client     *Client
	open       func(context.Context) (stream, error) // sends the request (nil for a trace that is only watched)
	position   *troupev1.WatchTraceRequest           // where the next stream continues
	from       uint64                                // the sequence after which the client began
	pace       *retry.Backoff
	broken     time.Time // time of the first break since the last progress (zero means none)
	rejections int       // how often the request was rejected as overloaded
	orphaned   bool      // no orchestrator drives the turn, so the request is sent again
	answered   bool      // a server has responded
	sent       bool      // the request may have reached a server
}

func (r *resumption) hasEvents() bool { return r.position.GetAfterSequence() != r.from }

// connect opens the next stream: of the request, until the trace is known and while no orchestrator drives it, and
// otherwise of the trace.
func (r *resumption) connect(ctx context.Context) (stream, error) {
	if r.open != nil && (r.position.GetTraceId() == "" || r.orphaned) {
		return r.open(ctx)
	}
	return r.client.watch(ctx, r.position)
}

// waitAfterBreak waits until the next stream may be opened. It returns the error that ends the sequence of events if there
// is none. began is when the broken stream was opened, and err is why it ended (nil if the server just ended it).
func (r *resumption) waitAfterBreak(ctx context.Context, progress bool, began time.Time, err error) error {
	_, unopened := errors.AsType[streamOpenError](err)
	if r.sent = r.sent || !unopened; !r.sent && isCertificateRejected(err) {
		return failure.New(failure.PolicySecurity, "client", "the mesh is not trusted, or does not trust who calls; nothing was sent").Because(err)
	}
	if err == nil {
		err = failure.New(failure.SystemNetwork, "client",
			"the stream ended before the turn did; send the request again with its session_id and request_id")
	}
	if !r.hasEvents() && r.rejections < maxRetries && r.client.waitToRetry(ctx, err) {
		r.rejections++
		r.broken = time.Time{}
		return nil
	}
	r.recordBreak(err, progress || time.Since(began) >= r.client.patience) // a stream that lasted this long counts as progress
	again := r.orphaned || failure.Is(err, failure.SystemNetwork, failure.SlowConsumer)
	if !again || time.Since(r.broken) >= r.patience() || r.pace.Wait(ctx) != nil {
		return err
	}
	return nil
}

// recordBreak records that a stream broke with err, and whether there was progress before.
func (r *resumption) recordBreak(err error, progress bool) {
	if progress {
		r.broken = time.Time{}
		r.pace.Reset()
	}
	if r.broken.IsZero() {
		r.broken = time.Now()
	}
	r.orphaned = r.open != nil && failure.Is(err, failure.TraceOrphaned)
	r.answered = r.answered || r.orphaned || r.hasEvents()
}

// patience returns how long the client resumes without progress.
func (r *resumption) patience() time.Duration {
	if r.answered {
		return r.client.patience
	}
	return min(r.client.patience, firstPatience)
}

func (c *Client) watch(ctx context.Context, req *troupev1.WatchTraceRequest) (stream, error) {
	s, err := c.WatchTrace(ctx, req)
	if err != nil {
		return nil, err
	}
	return func() (*troupev1.Event, error) { r, err := s.Recv(); return r.GetEvent(), err }, nil
}

// forwardStream yields the events of one stream, and sets in resume where another one continues. It returns done if it
// yielded the turn result or the consumer stopped. If the server ended the stream without an error, it returns no error.
func forwardStream(ctx context.Context, connect func(context.Context) (stream, error), resume *troupev1.WatchTraceRequest,
	yield func(*troupev1.Event, error) bool,
) (progress, done bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	recv, err := connect(ctx)
	if err != nil {
		return false, false, grpcfailure.FromStatus("client", streamOpenError{err})
	}
	for err == nil {
		var e *troupev1.Event
		if e, err = recv(); errors.Is(err, io.EOF) {
			return progress, false, nil
		} else if err != nil {
			break
		}
		resume.TraceId = e.GetTraceId()
		if s := e.GetSequence(); s > 0 {
			if s <= resume.GetAfterSequence() {
				continue // a repeated request begins with events that were yielded before
			}
			resume.AfterSequence, progress = s, true
		}
		if !yield(e, nil) || e.GetTurnResult() != nil {
			return progress, true, nil
		}
	}
	return progress, false, grpcfailure.FromStatus("client", err)
}

// streamOpenError wraps the error of a stream that could not be opened. The server has not seen the request.
type streamOpenError struct{ error }

// Unwrap returns the gRPC error.
func (s streamOpenError) Unwrap() error { return s.error }
