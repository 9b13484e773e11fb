// Package upkeep tends the sessions of a memory service beside its calls: it deletes those
// that nobody has used for long, and makes those shorter that have become long. All of it is
// best effort and in nobody's way: several replicas may do it at once, and what one fails to
// do it does another time.
package upkeep

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Store is what is tended.
type Store interface {
	memory.Store
	// Tenants are all that may have sessions.
	Tenants(ctx context.Context) ([]string, error)
	// Expire deletes the sessions of a tenant in which nothing has happened for so long, and
	// returns how many.
	Expire(ctx context.Context, tenant string, age time.Duration) (int, error)
}

// Config is what to do, and to what.
type Config struct {
	Store Store
	// Retention is how long a session is kept after its last activity; 0 keeps it for ever.
	Retention time.Duration
	// CompactAbove is how many messages a session may hold after a turn before it is
	// compacted; 0 compacts none, and a session at 90 % of its limits gives a warning (LP-21).
	CompactAbove int
	// CompactKeep is how many messages a compaction leaves; 0 is half of CompactAbove.
	CompactKeep int
	// Every is the time between two looks for sessions to delete; 0 is a tenth of Retention,
	// from a minute to an hour.
	Every   time.Duration
	Log     *zap.Logger
	Metrics metric.MeterProvider
}

const (
	queued      = 256              // sessions that wait; more are left until their next turn
	callTime    = 30 * time.Second // what one session may take
	sweepTime   = 10 * time.Minute
	nearlyFull  = 90   // percent of a limit
	rememberAll = 1000 // sessions of which is known that they were warned of
)

// Keeper tends sessions while Run runs.
type Keeper struct {
	cfg     Config
	closed  chan session.Ref
	least   int64                // sequence below which no session can be of interest
	warned  map[session.Ref]bool // used by Run alone
	expired metric.Int64Counter
	shorter metric.Int64Counter
}

// New returns a keeper. An error is one of the metrics.
func New(cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, closed: make(chan session.Ref, queued), warned: map[session.Ref]bool{}}
	if k.cfg.Every == 0 {
		k.cfg.Every = min(max(cfg.Retention/10, time.Minute), time.Hour)
	}
	if k.cfg.CompactKeep == 0 {
		k.cfg.CompactKeep = max(cfg.CompactAbove/2, 1)
	}
	k.least = min(session.MaxMessages, session.MaxBytes/conversation.MaxMessageBytes) * nearlyFull / 100
	if cfg.CompactAbove > 0 {
		k.least = int64(cfg.CompactAbove) + 1
	}
	meter := cfg.Metrics.Meter("troupe/memory")
	var err error
	if k.expired, err = meter.Int64Counter("troupe.sessions.expired", metric.WithDescription("Sessions that were deleted because nobody had used them for long.")); err != nil {
		return nil, err
	}
	k.shorter, err = meter.Int64Counter("troupe.sessions.compacted", metric.WithDescription("Sessions that were compacted because they had become long, by outcome."))
	return k, err
}

// Run tends sessions until ctx ends.
func (k *Keeper) Run(ctx context.Context, ready func()) error {
	ready()
	var work sync.WaitGroup
	defer work.Wait()
	if k.cfg.Retention > 0 {
		work.Go(func() { k.expire(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case ref := <-k.closed:
			k.look(ctx, ref)
		}
	}
}

// expire deletes what nobody uses, now and again.
func (k *Keeper) expire(ctx context.Context) {
	tick := time.NewTicker(k.cfg.Every)
	defer tick.Stop()
	for {
		k.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (k *Keeper) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	count := 0
	tenants, err := k.cfg.Store.Tenants(ctx)
	for _, tenant := range tenants {
		gone, failed := k.cfg.Store.Expire(ctx, tenant, k.cfg.Retention)
		count, err = count+gone, errors.Join(err, failed)
	}
	if count > 0 {
		k.expired.Add(ctx, int64(count))
		k.cfg.Log.Info("sessions were deleted because nobody had used them", zap.Int("sessions", count), zap.Duration("retention", k.cfg.Retention))
	}
	if err != nil && ctx.Err() == nil {
		k.cfg.Log.Warn("sessions that nobody uses could not all be deleted; the next look goes on", zap.Error(err))
	}
}

// look sees to a session whose turn has ended.
func (k *Keeper) look(ctx context.Context, ref session.Ref) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	found, err := k.cfg.Store.GetSession(ctx, ref)
	if err != nil {
		return // it was deleted, or the store is away: the next turn comes by again
	}
	if k.cfg.CompactAbove == 0 {
		k.warn(ref, found)
	} else if found.Messages > int64(k.cfg.CompactAbove) && found.OpenTurn == "" {
		k.compact(ctx, ref, found)
	}
}

func (k *Keeper) compact(ctx context.Context, ref session.Ref, found session.Session) {
	done, err := k.cfg.Store.CompactSession(ctx, memory.Compact{Ref: ref, Strategy: conversation.Summarize, Keep: k.cfg.CompactKeep})
	outcome := "done"
	switch {
	case failure.Is(err, failure.SessionBusy):
		outcome = "busy" // its next turn has begun, after which it is looked at again
	case err != nil:
		outcome = "failed"
		k.cfg.Log.Warn("a long session could not be compacted; it is tried again after its next turn", zap.String("session", ref.Session), zap.Error(err))
	default:
		k.cfg.Log.Debug("a long session was compacted", zap.String("session", ref.Session), zap.Int64("had", found.Messages), zap.Int64("went", done.Messages))
	}
	k.shorter.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}

// warn says once of a session that it will soon be full.
func (k *Keeper) warn(ref session.Ref, found session.Session) {
	nearly := found.Messages*100 >= session.MaxMessages*nearlyFull || found.Bytes*100 >= session.MaxBytes*nearlyFull
	switch {
	case !nearly:
		delete(k.warned, ref)
	case !k.warned[ref]:
		if len(k.warned) >= rememberAll {
			clear(k.warned)
		}
		k.warned[ref] = true
		k.cfg.Log.Warn("a session is nearly full; compact or clear it, or set --compact-above",
			zap.String("session", ref.Session), zap.Int64("messages", found.Messages), zap.Int64("bytes", found.Bytes))
	}
}
