// Package maintenance deletes sessions that have not been used for a long time, and compacts long sessions. It
// works in the background as best effort: several replicas may do the same work at once, and a failed attempt is
// repeated later.
package maintenance

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

// Store is the store whose sessions a Maintainer maintains.
type Store interface {
	memory.Store
	// Tenants returns all tenants that may have sessions.
	Tenants(ctx context.Context) ([]string, error)
	// Expire deletes the sessions of a tenant that have had no activity for the given age. It returns how many it
	// deleted.
	Expire(ctx context.Context, tenant string, age time.Duration) (int, error)
}

// Config says what to do.
type Config struct {
	Store Store
	// Retention is how long a session is kept after its last activity (0 means for ever).
	Retention time.Duration
	// CompactAbove is how many messages a session may hold after a turn before it is compacted. If it is 0, no
	// session is compacted. A session that reaches 90 % of its limits is logged instead (LP-21).
	CompactAbove int
	// CompactKeep is how many messages a compaction keeps (0 means half of CompactAbove).
	CompactKeep int
	// Interval is the time between two searches for sessions to delete (0 means a tenth of Retention, between a
	// minute and an hour).
	Interval time.Duration
	Log      *zap.Logger
	Metrics  metric.MeterProvider
}

const (
	checkQueueSize    = 256              // number of queued sessions; others are checked after their next turn
	sessionTimeout    = 30 * time.Second // time limit for one session
	expireTimeout     = 10 * time.Minute // time limit for one search for sessions to delete
	nearlyFullPercent = 90               // in percent of a limit
	maxWarnedSessions = 1000             // number of sessions in warnedSessions
)

// Maintainer deletes unused sessions and compacts long ones.
type Maintainer struct {
	cfg              Config
	checkQueue       chan session.Ref     // sessions to check, because a turn of them has ended
	minSequence      int64                // a session with a lower last sequence needs no check
	warnedSessions   map[session.Ref]bool // sessions whose warning was logged; used only by Run
	expiredCounter   metric.Int64Counter
	compactedCounter metric.Int64Counter
}

// New returns a Maintainer. It returns an error if a metric cannot be registered.
func New(cfg Config) (*Maintainer, error) {
	k := &Maintainer{cfg: cfg, checkQueue: make(chan session.Ref, checkQueueSize), warnedSessions: map[session.Ref]bool{}}
	if k.cfg.Interval == 0 {
		k.cfg.Interval = min(max(cfg.Retention/10, time.Minute), time.Hour)
	}
	if k.cfg.CompactKeep == 0 {
		k.cfg.CompactKeep = max(cfg.CompactAbove/2, 1)
	}
	k.minSequence = min(session.MaxMessages, session.MaxBytes/conversation.MaxMessageBytes) * nearlyFullPercent / 100
	if cfg.CompactAbove > 0 {
		k.minSequence = int64(cfg.CompactAbove) + 1
	}
	meter := cfg.Metrics.Meter("troupe/memory")
	var err error
	if k.expiredCounter, err = meter.Int64Counter("troupe.sessions.expired",
		metric.WithDescription("Sessions that were deleted because they had not been used for long.")); err != nil {
		return nil, err
	}
	k.compactedCounter, err = meter.Int64Counter("troupe.sessions.compacted",
		metric.WithDescription("Sessions that were compacted because they had become long, by outcome."))
	return k, err
}

// Run deletes unused sessions and compacts long ones until ctx ends.
func (m *Maintainer) Run(ctx context.Context, ready func()) error {
	ready()
	var work sync.WaitGroup
	defer work.Wait()
	if m.cfg.Retention > 0 {
		work.Go(func() { m.expirePeriodically(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case ref := <-m.checkQueue:
			m.checkSession(ctx, ref)
		}
	}
}

// expirePeriodically deletes unused sessions, once per interval, until ctx ends.
func (m *Maintainer) expirePeriodically(ctx context.Context) {
	tick := time.NewTicker(m.cfg.Interval)
	defer tick.Stop()
	for {
		m.expireSessions(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// expireSessions deletes the unused sessions of all tenants.
func (m *Maintainer) expireSessions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, expireTimeout)
	defer cancel()
	count := 0
	tenants, err := m.cfg.Store.Tenants(ctx)
	for _, tenant := range tenants {
		deleted, failed := m.cfg.Store.Expire(ctx, tenant, m.cfg.Retention)
		count, err = count+deleted, errors.Join(err, failed)
	}
	if count > 0 {
		m.expiredCounter.Add(ctx, int64(count))
		m.cfg.Log.Info("unused sessions were deleted", zap.Int("sessions", count), zap.Duration("retention", m.cfg.Retention))
	}
	if err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("some unused sessions could not be deleted; deletion is retried later", zap.Error(err))
	}
}

// checkSession compacts a session that has become long, or logs a warning if compaction is disabled.
func (m *Maintainer) checkSession(ctx context.Context, ref session.Ref) {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	found, err := m.cfg.Store.GetSession(ctx, ref)
	if err != nil {
		return // the session was deleted, or the store is unreachable; the next turn queues another check
	}
	if m.cfg.CompactAbove == 0 {
		m.warnIfNearlyFull(ref, found)
	} else if found.Size.Messages > int64(m.cfg.CompactAbove) && found.OpenTurn == "" {
		m.compactSession(ctx, ref, found)
	}
}

func (m *Maintainer) compactSession(ctx context.Context, ref session.Ref, found session.Session) {
	done, err := m.cfg.Store.CompactSession(ctx, memory.Compact{Ref: ref, Strategy: conversation.Summarize, Keep: m.cfg.CompactKeep})
	outcome := "done"
	switch {
	case failure.Is(err, failure.SessionBusy):
		outcome = "busy" // its next turn has begun, after which it is checked again
	case err != nil:
		outcome = "failed"
		m.cfg.Log.Warn("a long session could not be compacted; compaction is retried after its next turn",
			zap.String("session", ref.Session), zap.Error(err))
	default:
		m.cfg.Log.Debug("a long session was compacted",
			zap.String("session", ref.Session), zap.Int64("had", found.Size.Messages), zap.Int64("removed", done.Messages))
	}
	m.compactedCounter.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}

// warnIfNearlyFull logs a warning if a session is nearly full. It logs once until the session has room again.
func (m *Maintainer) warnIfNearlyFull(ref session.Ref, found session.Session) {
	full := found.Size.Messages*100 >= session.MaxMessages*nearlyFullPercent || found.Size.Bytes*100 >= session.MaxBytes*nearlyFullPercent
	switch {
	case !full:
		delete(m.warnedSessions, ref)
	case !m.warnedSessions[ref]:
		if len(m.warnedSessions) >= maxWarnedSessions {
			clear(m.warnedSessions)
		}
		m.warnedSessions[ref] = true
		m.cfg.Log.Warn("a session is nearly full; compact or clear it, or set --compact-above",
			zap.String("session", ref.Session), zap.Int64("messages", found.Size.Messages), zap.Int64("bytes", found.Size.Bytes))
	}
}
