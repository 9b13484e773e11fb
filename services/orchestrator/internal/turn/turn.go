// Package turn carries requests to their results: from Orchestrate to the last event of a trace. A turn
// runs on its own, under its own deadline, whether or not a client watches it.
//
// Each phase of a turn is a package. It takes the value of the phase before it and returns its own:
//
//	request   request.Request    what a caller requests, as a value
//	decide    decide.Admission   classifies the request, by a table: a new turn, a repeated one, answers, a resume,
//	                             a fork, a takeover
//	admit     run.BegunTurn      waits for the session and for a permit, and begins the turn in the memory service
//	takeover  run.BegunTurn      claims a turn whose orchestrator was lost
//	run       conclude.Outcome   drives the begun turn through its stages, a table of states
//	step      execution.Result   runs the steps of one round at instances, attempt after attempt;
//	                             assignment builds their requests, quarantine ends the steps of a quarantined agent
//	conclude  the last event     closes the turn, then its trace
//
// They share three things that live as long as the turn does:
//
//	active    the active turns of this orchestrator, and the requests that wait for each session
//	lease     the lease and the epoch of one turn in the memory service
//	publish   the writer of the events of one turn
//
// Durable writes of a turn with n steps, in sequence: BeginTurn, one commit for each step (by its worker),
// and the last event. All other events are stored while the steps run.
package turn

import (
	"context"
	"iter"
	"time"

	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/compact"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/conclude"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/run"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/step"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/takeover"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Config holds the dependencies and settings of a Runner.
type Config struct {
	Owner      string        // name of this orchestrator in trace records
	Timeout    time.Duration // timeout of a turn whose request and workflow set none
	Memory     admit.Memory
	Traces     *trace.Traces
	Instances  *instances.Cache
	Dispatcher *dispatch.Dispatcher
	Workflows  *workflow.Set
	Compactor  *compact.Compactor    // shortens long sessions after their turns (nil shortens none)
	Permits    *admission.Controller // admits new turns; Runner.Close closes it
	Telemetry  *telemetry.Telemetry

	// Credentials issues the credentials that workers present to the memory service (nil means that the mesh has
	// no identities).
	Credentials *turncred.Authority

	renewalInterval time.Duration // between two renewals of a lease (0 means the default); tests shorten it
	disconnectGrace time.Duration // see the constant (0 means that); tests shorten it
}

// Runner begins and drives turns. It is safe for concurrent use.
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
		Memory: cfg.Memory, RenewalInterval: cfg.renewalInterval, Publisher: publisher, Closer: closer, Steps: steps,
		Active: r.active, Drain: r.drain, ReadyInstances: cfg.Instances.Ready, Dispatcher: cfg.Dispatcher, Telemetry: cfg.Telemetry,
		Compactor: cfg.Compactor,
	})
	decider := &decide.Decider{
		Memory: cfg.Memory, Traces: cfg.Traces, Instances: cfg.Instances, Workflows: cfg.Workflows, InDoubt: decide.NewInDoubtTurns(),
	}
	if r.admit, err = admit.New(admit.Config{
		Timeout: cfg.Timeout, Traces: cfg.Traces, Decider: decider,
		Permits: cfg.Permits, Active: r.active, Drain: r.drain, Driver: driver, Closer: closer, Telemetry: cfg.Telemetry,
		Abandoned: r.cancelSoon,
	}); err != nil {
		return nil, err
	}
	r.reconciler, err = takeover.New(takeover.Config{
		Traces: cfg.Traces, Instances: cfg.Instances, Permits: cfg.Permits, Active: r.active, Drain: r.drain,
		Memory: cfg.Memory, Decider: decider, Closer: closer, Driver: driver, Telemetry: cfg.Telemetry,
	})
	return r, err
}

// Orchestrate begins the turn of a request, or finds the existing turn. It yields all events of the turn's trace.
// An error as the first item means that no turn was admitted, except system_network, system_timeout and
// trace_orphaned, after which the turn may have begun. A later error means that the stream was interrupted. When
// the consumer stops, the turn continues, unless the request says otherwise.
func (r *Runner) Orchestrate(ctx context.Context, req request.Request) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		begun, err := r.admit.Admit(ctx, req)
		if err != nil && ctx.Err() != nil && req.CancelOnDisconnect {
			r.requesterLeft(ctx, req)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		first := true
		for e, err := range r.Watch(ctx, trace.Ref{Tenant: req.Tenant, Trace: begun.Turn.Trace}, 0, req.CancelOnDisconnect) {
			if first && failure.Is(err, failure.NotFound) {
				yield(nil, admit.NewNotStoredError(begun))
				return
			}
			first = false
			if !yield(e, err) {
				return
			}
		}
	}
}

// Maintain renews the leases of the traces that this runner drives and takes over orphaned ones (guarantee F4),
// until ctx ends. ctx must not end before Close has returned.
func (r *Runner) Maintain(ctx context.Context) { r.reconciler.Maintain(ctx) }

// Close rejects new turns and lets the running turns continue until ctx ends. It then hands the remaining turns
// over: it releases their leases, and another orchestrator takes the turns over. Close returns when no turn runs
// here. It may be called again.
func (r *Runner) Close(ctx context.Context) {
	r.drain.Close(ctx, func() { r.cfg.Permits.Close(active.ErrStopping) })
}
