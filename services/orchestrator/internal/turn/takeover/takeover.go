// Package takeover continues turns whose orchestrator was lost. It renews the leases of the traces that this
// orchestrator drives, and takes over traces whose owner no longer renews them (guarantee F4).
package takeover

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/active"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/conclude"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/run"
)

const (
	maxAtOnce = 16 // turns that are taken over at once
	// MaxOwners is how many orchestrators one turn may lose before it fails. The limit prevents a turn from
	// crashing all of them.
	MaxOwners = 10
)

// Config holds the dependencies of a Reconciler.
type Config struct {
	Traces    *trace.Traces
	Instances *instances.Cache
	Permits   *admission.Controller
	Active    *active.Table
	Drain     *active.Drain
	Memory    lease.Memory
	Decider   *decide.Decider
	Closer    *conclude.Closer
	Driver    *run.Driver
	Telemetry *telemetry.Telemetry
}

// Reconciler takes over orphaned turns. It is safe for concurrent use.
type Reconciler struct {
	Config
	log       *zap.Logger
	takeovers metric.Int64Counter
}

// New returns a reconciler.
func New(cfg Config) (*Reconciler, error) {
	takeovers, err := cfg.Telemetry.Metrics.Meter("troupe/orchestrator").Int64Counter("troupe.takeovers",
		metric.WithDescription("Traces whose orchestrator went away, and that this one continued or ended."))
	return &Reconciler{Config: cfg, log: cfg.Telemetry.Log, takeovers: takeovers}, err
}

// Maintain renews the leases of this orchestrator's traces and takes over orphaned traces, until ctx ends. ctx
// must not end before the orchestrator has stopped driving turns. Maintain returns when all its goroutines have
// ended, except for the turns that it has started.
func (r *Reconciler) Maintain(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	slots := make(chan struct{}, maxAtOnce)
	pause := time.NewTimer(trace.WithJitter(trace.HeartbeatInterval))
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		take := cap(slots) - len(slots)
		if r.Drain.IsClosing() || !r.Instances.IsFilled() {
			take = 0 // the agents are not known yet
		}
		orphans := r.heartbeat(ctx, take)
		for _, ref := range orphans {
			slots <- struct{}{}
			workers.Go(func() {
				defer func() { <-slots }()
				r.TakeOver(ctx, ref)
			})
		}
		next := trace.HeartbeatInterval
		if take > 0 && len(orphans) == take {
			next /= 20 // there may be more
		}
		pause.Reset(trace.WithJitter(next))
	}
}

// heartbeat renews the leases of this orchestrator's traces and stops the turns that were cancelled at another
// orchestrator. It returns the orphans to take over.
func (r *Reconciler) heartbeat(ctx context.Context, take int) []trace.Ref {
	ctx, cancel := context.WithTimeout(ctx, trace.LeaseTime/2)
	defer cancel()
	orphans, stops, err := r.Traces.Heartbeat(ctx, take)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("the traces that run here were not renewed; another orchestrator may take them over", zap.Error(err))
	}
	for _, stop := range stops {
		if turn := r.Active.FindByTrace(stop.Ref); turn != nil {
			turn.Stop(active.NewCancelledError(stop.Reason))
		}
	}
	return orphans
}
