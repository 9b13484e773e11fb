// Package turn drives turns: the stage machine from INITIALIZE to the turn result. A turn
// runs on its own, under its own deadline, whoever watches it.
//
// Durable writes of a turn of n steps, in sequence: BeginTurn, one commit per step (by its
// worker), the last event. All other events are written beside them.
package turn

import (
	"context"
	"iter"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	gate "github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Times of a turn.
const (
	beginTime = 10 * time.Second // BeginTurn, repeats included
	closeTime = 30 * time.Second // to close a turn and store its last event
)

// Memory is what turns need of the memory service.
type Memory interface {
	memory.Turns
	GetSession(ctx context.Context, ref session.Ref) (session.Session, error)
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
	GetState(ctx context.Context, ref session.Ref) (memory.Snapshot, error)
}

// Config is what a runner works with.
type Config struct {
	Owner      string // this replica, as trace records name it
	Timeout    time.Duration
	Memory     Memory
	Traces     *trace.Traces
	Roster     *instances.Cache
	Dispatcher *dispatch.Dispatcher
	Workflows  *workflow.Set
	Gate       *gate.Gate // that new turns pass; Close closes it
	Telemetry  *telemetry.Telemetry

	// Credentials are what workers show to the memory service. Nil: the mesh has no identities.
	Credentials *turncred.Authority
}

// Runner begins turns and drives them. Safe for concurrent use.
type Runner struct {
	Config
	log      *zap.Logger
	turns    metric.Int64Counter
	duration metric.Float64Histogram
	lost     metric.Int64Counter
	adopted  metric.Int64Counter
	pending  metric.Int64Counter
	poison   metric.Int64Counter
	waited   metric.Float64Histogram
	signals  *signals

	violations *telemetry.Violations

	flights singleflight.Group // what concurrent calls for one turn do together
	callers *callers
	lookups chan struct{} // holds one for each request that looks for its turn before it waits
	running sync.WaitGroup
	unsure  *unsure
	seats   *seats
	renewal time.Duration // between two renewals of a lease

	mu      sync.Mutex
	closed  bool
	closing chan struct{} // closed with closed: nobody waits for a session any more
	stopped chan struct{} // closed by stop: running turns shall end
	stop    func()
}

// New returns a runner. The caller closes it.
func New(cfg Config) (*Runner, error) {
	meter := cfg.Telemetry.Metrics.Meter("troupe/orchestrator")
	turns, err := meter.Int64Counter("troupe.turns", metric.WithDescription("Turns that ended, by outcome."))
	if err != nil {
		return nil, err
	}
	duration, err := meter.Float64Histogram("troupe.turn.duration", metric.WithUnit("s"), seconds, metric.WithDescription("From admission to result."))
	if err != nil {
		return nil, err
	}
	lost, err := meter.Int64Counter("troupe.attempts.lost", metric.WithDescription("Attempts at a step that their instance did not bring to an end, by agent."))
	if err != nil {
		return nil, err
	}
	adopted, err := meter.Int64Counter("troupe.takeovers", metric.WithDescription("Traces whose orchestrator was gone, and that this one went on with or ended."))
	if err != nil {
		return nil, err
	}
	pending, err := meter.Int64Counter("troupe.calls.pending", metric.WithDescription("Tool calls that a turn ended with because they wait for somebody, by what they need."))
	if err != nil {
		return nil, err
	}
	poison, err := meter.Int64Counter("troupe.turns.quarantined", metric.WithDescription("Turns that took down all that they were given to, and are given to nobody any more (F22)."))
	if err != nil {
		return nil, err
	}
	waited, err := meter.Float64Histogram("troupe.calls.wait", metric.WithUnit("s"), waits, metric.WithDescription("From the end of the turn that waits to the answer of a call (OC-31), by verdict."))
	if err != nil {
		return nil, err
	}
	signals, err := newSignals(meter)
	if err != nil {
		return nil, err
	}
	violations, err := cfg.Telemetry.Violations()
	if err != nil {
		return nil, err
	}
	stopped := make(chan struct{})
	return &Runner{
		violations: violations,
		Config:     cfg, log: cfg.Telemetry.Log, turns: turns, duration: duration, lost: lost, adopted: adopted, pending: pending, poison: poison, waited: waited, signals: signals,
		unsure: newUnsure(), callers: newCallers(), lookups: make(chan struct{}, maxLookups), seats: newSeats(), renewal: renewal, closing: make(chan struct{}),
		stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) }),
	}, nil
}

// Orchestrate begins the turn, or finds it, and yields the events of its trace from the
// first on. An error as the first item means that nothing was admitted, unless it is
// system_network, system_timeout or trace_orphaned, which leave that open; later it means
// that the stream broke off. When the consumer stops, the turn goes on.
func (r *Runner) Orchestrate(ctx context.Context, req Request) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		req, err := r.located(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		req.Root = rootOf(req.Parent)
		begun, err := r.enqueue(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		req.Auth = execution.Auth{} // it is the turn's, and not of those who watch it
		if begun.Found == memory.FoundClosed {
			r.mend(ctx, req, begun.Turn)
		}
		req.Files = nil // what they hold is the session's, and not of those who watch
		first := true
		for e, err := range r.Traces.Watch(ctx, trace.Ref{Tenant: req.Tenant, Trace: begun.Turn.Trace}, 0) {
			if first && failure.Is(err, failure.NotFound) {
				yield(nil, unstored(begun))
				return
			}
			first = false
			if !yield(e, err) {
				return
			}
		}
	}
}

// mend ends the trace of a closed turn whose owner went away before it stored the last
// event, when nobody else does: nobody takes over a closed turn. One that is no longer kept,
// or never was, is stored from the turn record, which is kept longer (guarantees F13): what
// one is told must be what all are.
func (r *Runner) mend(ctx context.Context, req Request, closed session.Turn) {
	_, err := join(ctx, r, "mend "+closed.Trace, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, closeTime)
		defer cancel()
		left, err := r.Traces.Orphaned(ctx, trace.Ref{Tenant: req.Tenant, Trace: closed.Trace})
		if left && err == nil {
			err = r.conclude(ctx, req, req.fingerprint(), closed)
		}
		return struct{}{}, err
	})
	if err != nil && !failure.Is(err, failure.NotFound) {
		r.log.Warn("trace of a closed turn not ended", zap.String("trace", closed.Trace), zap.Error(err))
	}
}

// unstored is for a trace of which nothing is stored.
func unstored(begun memory.Begun) error {
	if begun.Found == memory.FoundClosed {
		return failure.New(failure.TraceOrphaned, "turn.Orchestrate", "the events of the turn cannot be stored at the moment; send the same request again")
	}
	return failure.Newf(failure.TraceOrphaned, "turn.Orchestrate",
		"the turn's orchestrator went away before it stored an event; the same request takes it over in %s", begun.LeaseLeft.Round(time.Second)).
		WithRetryAfter(begun.LeaseLeft)
}

// enter counts a turn in, unless the runner is closed.
func (r *Runner) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running.Add(1)
	return true
}

// Close takes no more turns, lets those that run end until ctx does, and then hands the rest
// over: their leases are released, and whoever asks first goes on with them. It returns when
// none runs. It may be called again.
func (r *Runner) Close(ctx context.Context) {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.closing)
		r.Gate.Close(errStopping)
	}
	r.mu.Unlock()
	idle := make(chan struct{})
	go func() { defer close(idle); r.running.Wait() }()
	select {
	case <-idle:
	case <-ctx.Done():
		r.stop()
		<-idle
	}
}

func (r *Runner) count(ctx context.Context, closed session.Turn, d time.Duration) {
	for _, p := range waiting(closed) {
		r.pending.Add(ctx, 1, metric.WithAttributes(attribute.String("needs", string(p.Needs))))
	}
	by := metric.WithAttributes(attribute.String("outcome", string(closed.Outcome)))
	r.turns.Add(ctx, 1, by)
	r.duration.Record(ctx, d.Seconds(), by)
}
