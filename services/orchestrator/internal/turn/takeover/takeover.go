// Package takeover continues turns whose orchestrator was lost. It renews the ownership of the traces that run
// here, and adopts traces whose owner no longer does so (guarantee F4).
package takeover

import (
	"context"
	"math/rand/v2"
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
	// MaxOwners is how many orchestrators may be lost with one turn. The turn then fails, because it must not
	// crash all of them.
	MaxOwners = 10
)

// Config is what an Adopter works with.
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

// Adopter takes over orphaned turns. Safe for concurrent use.
type Adopter struct {
	Config
	log     *zap.Logger
	adopted metric.Int64Counter
}

// New returns an adopter.
func New(cfg Config) (*Adopter, error) {
	adopted, err := cfg.Telemetry.Metrics.Meter("troupe/orchestrator").Int64Counter("troupe.takeovers",
		metric.WithDescription("Traces whose orchestrator went away, and that this one continued or ended."))
	return &Adopter{Config: cfg, log: cfg.Telemetry.Log, adopted: adopted}, err
}

// Maintain renews the traces of this orchestrator and adopts orphaned ones, until ctx ends. That must not
// be before the orchestrator has stopped driving turns. It returns when nothing of it runs any more, except
// for the turns that it has started.
func (a *Adopter) Maintain(ctx context.Context) {
	var adopting sync.WaitGroup
	defer adopting.Wait()
	slots := make(chan struct{}, maxAtOnce)
	pause := time.NewTimer(withJitter(trace.HeartbeatInterval))
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		take := cap(slots) - len(slots)
		if a.Drain.IsClosing() || !a.Instances.IsFilled() {
			take = 0 // it does not know yet which agents there are
		}
		orphans := a.heartbeat(ctx, take)
		for _, ref := range orphans {
			slots <- struct{}{}
			adopting.Go(func() {
				defer func() { <-slots }()
				a.Adopt(ctx, ref)
			})
		}
		next := trace.HeartbeatInterval
		if take > 0 && len(orphans) == take {
			next /= 20 // there may be more
		}
		pause.Reset(withJitter(next))
	}
}

// withJitter returns a random time close to d, so that replicas do not call at the same moment.
func withJitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2) //nolint:gosec // it spreads load and hides nothing
}

// heartbeat renews the traces of this orchestrator, stops those that were cancelled at another one, and
// returns orphans to adopt.
func (a *Adopter) heartbeat(ctx context.Context, take int) []trace.Ref {
	ctx, cancel := context.WithTimeout(ctx, trace.LeaseTime/2)
	defer cancel()
	orphans, stops, err := a.Traces.Heartbeat(ctx, take)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("the traces that run here were not renewed; another orchestrator may adopt them", zap.Error(err))
	}
	for _, stop := range stops {
		if turn := a.Active.OfTrace(stop.Ref); turn != nil {
			turn.Stop(active.CancelledError(stop.Reason))
		}
	}
	return orphans
}
