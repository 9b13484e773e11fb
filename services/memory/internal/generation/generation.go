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
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// DefaultEvery is how often a guard looks.
const DefaultEvery = 5 * time.Second

// lookTime bounds one look.
const lookTime = 5 * time.Second

// Data is the store that is guarded. Each call may take as long as its context.
type Data interface {
	// Identity changes when other data, or another process, serve a share of the store.
	Identity(ctx context.Context) (Identity, error)
	// Beat adds to the counter of a share and returns it.
	Beat(ctx context.Context, share string, by int64) (int64, error)
	// Remember keeps the mark beside the data, for when the registry is away.
	Remember(ctx context.Context, m Mark) error
	// Recall returns it; the zero Mark when there is none.
	Recall(ctx context.Context) (Mark, error)
}

// Identity names the processes that serve the shares of a store, by the names of the shares.
// That of a store which is in one piece is empty.
type Identity map[string]string

// String is the same for the same identities only.
func (id Identity) String() string {
	var parts []string
	for _, share := range slices.Sorted(maps.Keys(id)) {
		if share == "" {
			parts = append(parts, id[share])
		} else {
			parts = append(parts, share+"="+id[share])
		}
	}
	return strings.Join(parts, ",")
}

// identified is the identity that String wrote.
func identified(written string) Identity {
	id := Identity{}
	for part := range strings.SplitSeq(written, ",") {
		if share, process, named := strings.Cut(part, "="); named {
			id[share] = process
		} else if part != "" {
			id[""] = part
		}
	}
	return id
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

	mu        sync.Mutex
	settled   Mark            // what has a generation
	serving   map[string]bool // the processes of settled
	known     bool            // whether settled is what there is
	strangers int64           // how often a process was met that is none of them
	sure      int64           // how often before it was looked who serves

	deserted bool // whether the registry was away at the last look
	blind    bool // whether the store did not say who it is at the last look
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
	if !g.known || g.sure != g.strangers {
		return 0, failure.New(failure.SystemNetwork, "memory.Generation",
			"the store was started or replaced, and what its data are is not settled yet; no turn was begun, try again")
	}
	return g.settled.Generation, nil
}

// Met tells the guard which process is at the other end of a new connection.
func (g *Guard) Met(process string) {
	g.mu.Lock()
	stranger := !g.known || !g.serving[process]
	if stranger {
		g.strangers++
	}
	g.mu.Unlock()
	if !stranger {
		return
	}
	select {
	case g.look <- struct{}{}:
	default: // it is to look already
	}
}

// met is how many strangers there were.
func (g *Guard) met() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.strangers
}

// saw notes the identity, which was asked for after so many strangers, and reports whether
// that has its generation.
func (g *Guard) saw(identity string, strangers int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known = g.known && g.settled.Identity == identity; g.known {
		g.sure = strangers
	}
	return g.known
}

// Run looks after the data until ctx ends, and then returns nil. It calls ready, which may be
// repeated, while their generation is known. While it is not, no turn begins: so it looks
// again soon, as a store that was just started may still be loading.
func (g *Guard) Run(ctx context.Context, data Data, ready func()) error {
	tick := time.NewTicker(g.cfg.Every)
	defer tick.Stop()
	pace := retry.NewBackoff()
	for {
		g.tend(ctx, data)
		if _, err := g.Generation(); err == nil {
			pace.Reset()
			ready()
		} else if pace.Wait(ctx) == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.look:
		case <-tick.C:
		}
	}
}

func (g *Guard) settle(m Mark, strangers int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled, g.known, g.sure = m, true, strangers
	g.serving = map[string]bool{}
	for _, process := range identified(m.Identity) {
		g.serving[process] = true
	}
}
