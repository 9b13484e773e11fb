// Package generation notices that the data of a store may have lost writes that were
// acknowledged, by a failover or a restore, and lifts all epochs above those of before
// (guarantees F7).
//
// Whose data they are is told by the store's identity; a counter that the store keeps, and a
// copy of it elsewhere, tell whether they went back in time.
package generation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/registry"
)

// DefaultEvery is how often a guard looks.
const DefaultEvery = 5 * time.Second

// lookTime bounds one look.
const lookTime = 5 * time.Second

// Data is the store that is guarded. Each call may take as long as its context.
type Data interface {
	// Identity changes when other data, or another process, serve the store.
	Identity(ctx context.Context) (string, error)
	// Beat adds to the counter and returns it.
	Beat(ctx context.Context, by int64) (int64, error)
	// Remember keeps the mark beside the data, for when the registry is away.
	Remember(ctx context.Context, m Mark) error
	// Recall returns it; the zero Mark when there is none.
	Recall(ctx context.Context) (Mark, error)
}

// Mark is the generation of the data of an identity.
type Mark struct {
	Generation int64
	Identity   string
}

// Config is what a guard works with.
type Config struct {
	Records registry.StoreRecords
	Name    string        // of the store in the records
	Every   time.Duration // 0: DefaultEvery
	Log     *zap.Logger
	Metrics metric.MeterProvider
}

// Guard knows the generation of a store. Safe for concurrent use.
type Guard struct {
	cfg       Config
	rollbacks metric.Int64Counter
	look      chan struct{} // something was met

	mu       sync.Mutex
	met      string // the identity that was seen last; empty: none yet
	settled  Mark   // what has a generation
	known    bool   // whether settled is anything
	deserted bool   // whether the registry was away at the last look
}

// New returns a guard that knows nothing yet: its store begins no turns until Run has
// looked.
func New(cfg Config) (*Guard, error) {
	if cfg.Every <= 0 {
		cfg.Every = DefaultEvery
	}
	rollbacks, err := cfg.Metrics.Meter("troupe/memory").Int64Counter("troupe.store.rollback",
		metric.WithDescription("How often the data of the store were found to have gone back in time."))
	if err != nil {
		return nil, fmt.Errorf("generation: %w", err)
	}
	return &Guard{cfg: cfg, rollbacks: rollbacks, look: make(chan struct{}, 1)}, nil
}

// Generation is that of the data that were met last. Modes: system_network while it is not
// known: then nothing may be minted.
func (g *Guard) Generation() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.known || g.met != g.settled.Identity {
		return 0, failure.New(failure.SystemNetwork, "memory.Generation",
			"the store was started or replaced, and what its data are is not settled yet; no turn was begun, try again")
	}
	return g.settled.Generation, nil
}

// Met tells the guard the identity at the other end of a new connection.
func (g *Guard) Met(identity string) {
	if g.saw(identity) {
		return
	}
	select {
	case g.look <- struct{}{}:
	default: // it is to look already
	}
}

// saw notes the identity and reports whether that has its generation.
func (g *Guard) saw(identity string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.met = identity
	return g.known && g.settled.Identity == identity
}

// Run looks after the data until ctx ends, and then returns nil. It calls ready, which may be
// repeated, while their generation is known.
func (g *Guard) Run(ctx context.Context, data Data, ready func()) error {
	tick := time.NewTicker(g.cfg.Every)
	defer tick.Stop()
	for {
		g.tend(ctx, data)
		if _, err := g.Generation(); err == nil {
			ready()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.look:
		case <-tick.C:
		}
	}
}

func (g *Guard) settle(m Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled, g.known = m, true
}
