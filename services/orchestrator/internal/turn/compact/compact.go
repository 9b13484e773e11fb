// Package compact shortens sessions that are longer than their settings allow (LP-21, LP-26). It works between the
// turns of a session, in the background and as best effort: a failed attempt is repeated after the next turn. A rule
// or the model of an agent writes the summary.
package compact

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of the work in the background.
const (
	maxQueued  = 256             // sessions that wait; others are enqueued again after their next turn
	maxWorkers = 2               // sessions that are compacted at once
	timeout    = 2 * time.Minute // for one session, with the call of a model
	maxWritten = 256             // summaries of sessions that were busy when a model had written them
)

// Session is a session to check.
type Session struct {
	Ref      session.Ref
	Agent    string // agent whose model writes a summary (empty means that a rule does)
	Settings session.Settings
	Messages int64 // number of its messages
}

// needsCompaction reports whether the session is longer than its settings allow.
func (s Session) needsCompaction() bool {
	return s.Settings.AutoCompact && s.Messages > s.Settings.Limit()
}

// Memory is the part of the memory service that a Compactor uses.
type Memory interface {
	LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error)
	CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error)
}

// Config holds the dependencies of a Compactor.
type Config struct {
	Memory    Memory
	Summarize Summarize
	Telemetry *telemetry.Telemetry
}

// Compactor shortens long sessions. It is safe for concurrent use. A nil Compactor does nothing.
type Compactor struct {
	cfg     Config
	queue   chan Session
	counter metric.Int64Counter

	mu      sync.Mutex
	written map[session.Ref]writtenSummary // summaries of models that are not stored yet, because the session was busy
}

// New returns a compactor. Run must run for it to do anything.
func New(cfg Config) (*Compactor, error) {
	counter, err := cfg.Telemetry.Metrics.Meter("troupe/orchestrator").Int64Counter("troupe.sessions.autocompacted",
		metric.WithDescription("Sessions that were compacted because of their settings, by outcome and author of the summary."))
	return &Compactor{cfg: cfg, queue: make(chan Session, maxQueued), counter: counter, written: map[session.Ref]writtenSummary{}}, err
}

// Enqueue compacts a session soon if it is longer than its settings allow. It does not block.
func (c *Compactor) Enqueue(s Session) {
	if c == nil || !s.needsCompaction() {
		return
	}
	select {
	case c.queue <- s:
	default:
		c.count(context.Background(), "dropped", "none")
	}
}

// Run compacts enqueued sessions until ctx ends.
func (c *Compactor) Run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	for range maxWorkers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case s := <-c.queue:
					c.compact(ctx, s)
				}
			}
		})
	}
}

func (c *Compactor) compact(ctx context.Context, s Session) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request := memory.Compact{Ref: s.Ref, Strategy: cmp.Or(s.Settings.Strategy, conversation.Summarize), Keep: s.Settings.Keep()}
	log, author := c.cfg.Telemetry.Log.With(zap.String("session", s.Ref.Session)), "rule"
	var text writtenSummary
	if s.Settings.SummaryByModel && s.Agent != "" {
		var err error
		if text, err = c.summarize(ctx, s); err != nil {
			log.Warn("the model wrote no summary of a long session; a rule makes one", zap.String("agent", s.Agent), zap.Error(err))
		} else {
			request.Summary, request.UpTo, author = text.text, text.upTo, "model"
		}
	}
	done, err := c.cfg.Memory.CompactSession(ctx, request)
	switch {
	case err == nil:
		log.Info("a long session was compacted", zap.Int64("had", s.Messages), zap.Int64("removed", done.Messages), zap.String("summary_by", author))
		c.count(ctx, "done", author)
	case failure.Is(err, failure.SessionBusy): // its next turn has begun, after which it is enqueued again
		c.keep(s.Ref, text)
		c.count(ctx, "busy", author)
	case failure.Is(err, failure.NotFound, failure.SessionDeleted):
	default:
		log.Warn("a long session was not compacted; it is tried again after its next turn", zap.Error(err))
		c.count(ctx, "failed", author)
	}
}

func (c *Compactor) count(ctx context.Context, outcome, author string) {
	c.counter.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome), attribute.String("summary_by", author)))
}
