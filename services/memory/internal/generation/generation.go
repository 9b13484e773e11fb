// Package generation detects that a store may have lost acknowledged writes, by a failover or a restore. It then
// raises all epochs above the earlier ones (guarantee F7).
//
// The identity of the store shows whether its data were replaced. A counter in the store, compared with a copy in
// the registry, shows whether the data lost writes.
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

// DefaultInterval is the default time between two checks of a guard.
const DefaultInterval = 5 * time.Second

// checkTimeout is the time limit of one check.
const checkTimeout = 5 * time.Second

// GuardedStore is the store that a Guard checks. Its calls have no time limit except their context.
type GuardedStore interface {
	// Identity returns the processes that serve the shards of the store. It changes when a shard is served by another
	// process or from different data. A shard is one master of a Cluster.
	Identity(ctx context.Context) (Identity, error)
	// Increment adds the number by to the counter of a shard and returns the new value.
	Increment(ctx context.Context, shard string, by int64) (int64, error)
	// StoreMark stores the mark with the data. It is read while the registry is unreachable.
	StoreMark(ctx context.Context, m Mark) error
	// LoadMark returns the stored mark (the zero Mark when there is none).
	LoadMark(ctx context.Context) (Mark, error)
}

// Identity maps the names of a store's shards to the processes that serve them. A store without shards has a
// single entry with an empty name.
type Identity map[string]string

// String returns a text that identifies the identity. Two identities have the same text only if they are equal.
func (id Identity) String() string {
	var parts []string
	for _, shard := range slices.Sorted(maps.Keys(id)) {
		if shard == "" {
			parts = append(parts, id[shard])
		} else {
			parts = append(parts, shard+"="+id[shard])
		}
	}
	return strings.Join(parts, ",")
}

// parseIdentity parses a text that Identity.String returned.
func parseIdentity(written string) Identity {
	id := Identity{}
	for part := range strings.SplitSeq(written, ",") {
		if shard, process, named := strings.Cut(part, "="); named {
			id[shard] = process
		} else if part != "" {
			id[""] = part
		}
	}
	return id
}

// Mark is the generation of the data, and the identity of the store that had the data.
type Mark struct {
	Generation int64
	Identity   string
}

// Config has the settings of a Guard.
type Config struct {
	Records  registry.StoreRecords
	Name     string        // name of the store in Records
	Interval time.Duration // time between two checks (0 means DefaultInterval)
	Log      *zap.Logger
	Metrics  metric.MeterProvider
}

// Guard determines the generation of a store's data. It is safe for concurrent use.
type Guard struct {
	cfg       Config
	rollbacks metric.Int64Counter
	wake      chan struct{} // receives a value when a connection reaches an unknown process

	mu               sync.Mutex
	agreedMark       Mark            // last mark that was agreed with the registry
	servingProcesses map[string]bool // processes of the agreed mark
	isVerified       bool            // whether the agreed mark is current
	unknownCount     int64           // how often a connection reached an unknown process
	verifiedCount    int64           // value of unknownCount before the last verified identity was read

	isRegistryUnreachable bool // whether the registry was unreachable at the last check
	isIdentityMissing     bool // whether the store did not identify itself at the last check
}

// New returns a guard that does not know the generation yet. The store can begin no turns until Run has checked
// it.
func New(cfg Config) (*Guard, error) {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	rollbacks, err := cfg.Metrics.Meter("troupe/memory").Int64Counter("troupe.store.rollback",
		metric.WithDescription("How often the data of the store went back in time."))
	if err != nil {
		return nil, fmt.Errorf("generation: %w", err)
	}
	return &Guard{cfg: cfg, rollbacks: rollbacks, wake: make(chan struct{}, 1)}, nil
}

// Generation returns the generation of the data. Modes: system_network while the generation of a connected process
// is unknown. In that case no epoch may be assigned.
func (g *Guard) Generation() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isVerified || g.verifiedCount != g.unknownCount {
		return 0, failure.New(failure.SystemNetwork, "memory.Generation",
			"the store was started or replaced, and the generation of its data is not known yet; no turn was begun, try again")
	}
	return g.agreedMark.Generation, nil
}

// RecordProcess records the process that a new connection has reached. An unknown process invalidates the
// generation until the next check.
func (g *Guard) RecordProcess(process string) {
	g.mu.Lock()
	unknown := !g.isVerified || !g.servingProcesses[process]
	if unknown {
		g.unknownCount++
	}
	g.mu.Unlock()
	if !unknown {
		return
	}
	select {
	case g.wake <- struct{}{}:
	default: // a check is already due
	}
}

// loadUnknownCount returns how often a connection has reached an unknown process.
func (g *Guard) loadUnknownCount() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unknownCount
}

// verifyIdentity compares an identity of the store with the agreed mark and reports whether they match.
// unknownCount is how often an unknown process had been reached before the identity was read.
func (g *Guard) verifyIdentity(identity string, unknownCount int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isVerified = g.isVerified && g.agreedMark.Identity == identity; g.isVerified {
		g.verifiedCount = unknownCount
	}
	return g.isVerified
}

// Run checks the store regularly until ctx ends, and then returns nil. It calls ready after each check while the
// generation is known. While it is unknown no turn can begin, so Run checks again soon: a store that has just
// started may still be loading.
func (g *Guard) Run(ctx context.Context, data GuardedStore, ready func()) error {
	tick := time.NewTicker(g.cfg.Interval)
	defer tick.Stop()
	pace := retry.NewBackoff()
	for {
		g.checkStore(ctx, data)
		if _, err := g.Generation(); err == nil {
			pace.Reset()
			ready()
		} else if pace.Wait(ctx) == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.wake:
		case <-tick.C:
		}
	}
}

// setGeneration adopts m, which the registry or the store has, as the verified mark, and its processes as the ones
// that serve.
func (g *Guard) setGeneration(m Mark, unknownCount int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.agreedMark, g.isVerified, g.verifiedCount = m, true, unknownCount
	g.servingProcesses = map[string]bool{}
	for _, process := range parseIdentity(m.Identity) {
		g.servingProcesses[process] = true
	}
}
