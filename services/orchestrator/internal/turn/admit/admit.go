// Package admit begins the turn of a request, or finds the turn that the request already has.
// A request passes through these files from top to bottom, once:
//
//	admit.go   Admit: find the session, wait for it if another turn is open (queue.go), and end the trace of a closed turn
//	once.go    let concurrent calls for the same request share one attempt
//	permit.go  wait for a permit of the admission controller, unless the turn is known
//	decide     package decide classifies the request, by its table of cases
//	begin.go   begin the turn in the memory service, and start driving it
package admit

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/conclude"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/run"
)

// Memory is the part of the memory service that admission uses.
type Memory interface {
	lease.Memory
	decide.Memory
}

// Config holds the dependencies and settings of an Admitter.
type Config struct {
	Timeout   time.Duration // timeout of a turn whose request and workflow set none
	Traces    *trace.Traces
	Decider   *decide.Decider
	Permits   *admission.Controller
	Active    *active.Table
	Drain     *active.Drain
	Driver    *run.Driver
	Closer    *conclude.Closer
	Telemetry *telemetry.Telemetry
	// Abandoned is called for a turn with CancelOnDisconnect that began after all its callers had left.
	Abandoned func(context.Context, trace.Ref)
}

// Admitter begins the turns of requests. It is safe for concurrent use.
type Admitter struct {
	Config
	log         *zap.Logger
	answerWait  metric.Float64Histogram
	flights     singleflight.Group // concurrent calls for one request
	callers     *callerGroups
	lookupSlots chan struct{} // semaphore: one slot for each request that looks up its turn before it waits
}

// waitBuckets are the bucket boundaries, in seconds, of the histogram of the time that pending calls wait for
// their answers.
var waitBuckets = metric.WithExplicitBucketBoundaries(1, 5, 15, 60, 300, 900, 3600, 6*3600, 24*3600, 7*24*3600)

// New returns an admitter.
func New(cfg Config) (*Admitter, error) {
	waited, err := cfg.Telemetry.Metrics.Meter("troupe/orchestrator").Float64Histogram("troupe.calls.wait", metric.WithUnit("s"), waitBuckets,
		metric.WithDescription("From the end of the turn that waits to the answer of a call (OC-31), by verdict."))
	return &Admitter{
		Config: cfg, log: cfg.Telemetry.Log, answerWait: waited,
		callers: newCallerGroups(), lookupSlots: make(chan struct{}, maxLookups),
	}, err
}

// Admit begins the turn of a request and starts driving it, or finds the existing turn. If that turn is closed,
// Admit first makes sure that the end of its trace is stored.
//
// While another turn of the session is open, Admit follows OnBusy. A request waits at most as long as its turn may
// take, and only while its caller waits. A request that does not wait never overtakes requests that do. Answers
// never interrupt a turn. An error means that no turn was begun, except system_network and system_timeout, after
// which the turn may have begun.
func (a *Admitter) Admit(ctx context.Context, req request.Request) (memory.BeginResult, error) {
	req, err := a.Decider.LocateSession(ctx, req)
	if err != nil {
		return memory.BeginResult{}, err
	}
	if req.IsAnswer() && req.OnBusy == request.Interrupt {
		req.OnBusy = request.Enqueue // the open turn may have begun with another answer to the same calls
	}
	begun, err := a.admit(ctx, req)
	if err == nil && begun.Status == memory.StatusClosed {
		a.endOrphan(ctx, req, begun.Turn)
	}
	return begun, err
}

// admit begins the turn at once, or waits for the session if the request may wait.
func (a *Admitter) admit(ctx context.Context, req request.Request) (memory.BeginResult, error) {
	queued := a.Active.QueueLength(req.Ref) > 0
	switch {
	case !queued && req.OnBusy == request.Reject:
		return a.beginOnce(ctx, req, false)
	case queued:
		if begun, _, err := a.findTurn(ctx, req); begun.Status != "" || err != nil {
			return begun, err
		}
		if req.OnBusy == request.Reject {
			return memory.BeginResult{}, a.Active.NewBusyError(req.Ref,
				"other requests wait for the session already; ask with on_busy ENQUEUE to wait with them")
		}
	}
	position, ok := a.Active.Enqueue(req.Ref, req.TurnID(), req.OnBusy == request.Interrupt)
	if !ok {
		return memory.BeginResult{}, a.Active.NewBusyError(req.Ref,
			fmt.Sprintf("%d requests wait for the session already, and no more may; try again later", active.MaxWaiting))
	}
	defer a.Active.LeaveQueue(req.Ref, position)
	return a.waitForSession(ctx, req, position)
}

// endOrphan ends the trace of a closed turn whose owner was lost before it stored the last event. Concurrent
// requests for the turn share one attempt.
func (a *Admitter) endOrphan(ctx context.Context, req request.Request, closed session.Turn) {
	_, err := runOnce(ctx, a, "end trace "+closed.Trace, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, a.Closer.EndOrphan(ctx, req, req.Fingerprint(), closed)
	})
	if err != nil && !failure.Is(err, failure.NotFound) {
		a.log.Warn("trace of a closed turn not ended", zap.String("trace", closed.Trace), zap.Error(err))
	}
}

// NewNotStoredError returns the error for a trace of which nothing is stored.
func NewNotStoredError(begun memory.BeginResult) error {
	const op = "turn.Orchestrate"
	if begun.Status == memory.StatusClosed {
		return failure.New(failure.TraceOrphaned, op, "the events of the turn cannot be stored at the moment; send the same request again")
	}
	return failure.Newf(failure.TraceOrphaned, op,
		"the turn's orchestrator went away before it stored an event; the same request takes it over in %s", begun.LeaseLeft.Round(time.Second)).
		WithRetryAfter(begun.LeaseLeft)
}
