// Package turn carries requests to their results: from Orchestrate to the last event of a trace. A turn
// runs on its own, under its own deadline, whether or not a client watches it.
//
// The phases of a turn are packages. Each takes the value of the one before it, and makes its own:
//
//	request   request.Request    what a caller asks, as a value
//	decide    decide.Admission   what the request is, by a table: a new turn, a repeated one, answers, a resume,
//	                             a fork, a takeover
//	admit     run.BegunTurn      waits for the session and for a permit, and begins the turn in the memory service
//	takeover  run.BegunTurn      does so for a turn whose orchestrator went away
//	run       conclude.Outcome   drives the begun turn through its stages, a table of states
//	step      execution.Result   has the steps of one round done by instances, attempt after attempt;
//	                             assignment is what an instance is given, quarantine ends a barred agent's steps
//	conclude  the last event     closes the turn, then its trace
//
// They share three things that live as long as the turn does:
//
//	active    the active turns of this orchestrator, and the requests that wait for each session
//	lease     the lease and the epoch of one turn in the memory service
//	publish   the writer of the events of one turn
//
// Durable writes of a turn with n steps, in sequence: BeginTurn, one commit for each step (by its worker),
// and the last event. All other events are stored beside the work.
package turn

import (
	"context"
	"iter"
	"time"

	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/conclude"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/run"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/step"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/takeover"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Config has the dependencies and settings of a Runner.
type Config struct {
	Owner      string        // this orchestrator, as trace records name it
	Timeout    time.Duration // of a turn whose request and workflow name none
	Memory     admit.Memory
	Traces     *trace.Traces
	Instances  *instances.Cache
	Dispatcher *dispatch.Dispatcher
	Workflows  *workflow.Set
	Permits    *admission.Controller // gives permits to new turns; Close closes it
	Telemetry  *telemetry.Telemetry

	// Credentials are what workers show to the memory service (nil means that the mesh has no identities).
	Credentials *turncred.Authority

	renewal time.Duration // between two renewals of a lease (0 means the default); tests shorten it
}

// Runner begins turns and drives them. Safe for concurrent use.
type Runner struct {
	cfg        Config
	active     *active.Table
	drain      *active.Drain
	admit      *admit.Admitter
	reconciler *takeover.Reconciler
}

// New returns a runner. The caller closes it.
func New(cfg Config) (*Runner, error) {
	r := &Runner{cfg: cfg, active: active.NewTable(), drain: active.NewDrain()}
	publisher, err := publish.New(cfg.Owner, cfg.Traces, cfg.Telemetry)
	if err != nil {
		return nil, err
	}
	closer, err := conclude.New(publisher, cfg.Telemetry)
	if err != nil {
		return nil, err
	}
	steps, err := step.New(step.Config{
		Owner: cfg.Owner, CancelDescendants: r.cancelDescendants, Instances: cfg.Instances, Dispatcher: cfg.Dispatcher,
		Workflows: cfg.Workflows, Credentials: cfg.Credentials, Telemetry: cfg.Telemetry,
	})
	if err != nil {
		return nil, err
	}
	driver := run.New(run.Config{
		Memory: cfg.Memory, Renewal: cfg.renewal, Publisher: publisher, Closer: closer, Steps: steps,
		Active: r.active, Drain: r.drain, ReadyInstances: cfg.Instances.Ready, Dispatcher: cfg.Dispatcher, Telemetry: cfg.Telemetry,
	})
	decider := &decide.Decider{
		Memory: cfg.Memory, Traces: cfg.Traces, Instances: cfg.Instances, Workflows: cfg.Workflows, InDoubt: decide.NewInDoubt(),
	}
	if r.admit, err = admit.New(admit.Config{
		Timeout: cfg.Timeout, Traces: cfg.Traces, Decider: decider,
		Permits: cfg.Permits, Active: r.active, Drain: r.drain, Driver: driver, Closer: closer, Telemetry: cfg.Telemetry,
	}); err != nil {
		return nil, err
	}
	r.reconciler, err = takeover.New(takeover.Config{
		Traces: cfg.Traces, Instances: cfg.Instances, Permits: cfg.Permits, Active: r.active, Drain: r.drain,
		Memory: cfg.Memory, Decider: decider, Closer: closer, Driver: driver, Telemetry: cfg.Telemetry,
	})
	return r, err
}

// Orchestrate begins the turn of a request, or finds it, and yields the events of its trace from the first
// one on. An error as the first item means that nothing was admitted, unless it is system_network,
// system_timeout or trace_orphaned, which leave that open. A later error means that the stream broke off.
// When the consumer stops, the turn continues.
func (r *Runner) Orchestrate(ctx context.Context, req request.Request) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		begun, err := r.admit.Admit(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		first := true
		for e, err := range r.cfg.Traces.Watch(ctx, trace.Ref{Tenant: req.Tenant, Trace: begun.Turn.Trace}, 0) {
			if first && failure.Is(err, failure.NotFound) {
				yield(nil, errNotStored(begun))
				return
			}
			first = false
			if !yield(e, err) {
				return
			}
		}
	}
}

// errNotStored is the error for a trace of which nothing is stored.
func errNotStored(begun memory.BeginResult) error {
	const op = "turn.Orchestrate"
	if begun.Status == memory.StatusClosed {
		return failure.New(failure.TraceOrphaned, op, "the events of the turn cannot be stored at the moment; send the same request again")
	}
	return failure.Newf(failure.TraceOrphaned, op,
		"the turn's orchestrator went away before it stored an event; the same request takes it over in %s", begun.LeaseLeft.Round(time.Second)).
		WithRetryAfter(begun.LeaseLeft)
}

// Maintain renews the traces that run here and takes over orphaned ones (guarantee F4), until ctx ends. That
// must not be before Close has returned.
func (r *Runner) Maintain(ctx context.Context) { r.reconciler.Maintain(ctx) }

// Close takes no more turns, lets those that run end until ctx does, and then hands the rest over: their
// leases are released, and another orchestrator takes them over. It returns when none runs. It may be
// called again.
func (r *Runner) Close(ctx context.Context) {
	r.drain.Close(ctx, func() { r.cfg.Permits.Close(active.ErrStopping) })
}
