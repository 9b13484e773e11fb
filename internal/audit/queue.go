package audit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
)

const (
	room       = 4096             // entries that may wait for the disk
	batch      = 256              // that are written at once
	syncPeriod = time.Second      // within which lines come to the disk
	headPeriod = 10 * time.Minute // within which the log says where the chain is
)

// recorded is an entry with where and when it was recorded.
type recorded struct {
	Entry
	by string
	at time.Time
}

// queue takes entries to a chain. One goroutine owns the chain.
type queue struct {
	chain   *chain
	log     *zap.Logger
	entries metric.Int64Counter
	missing metric.Int64Counter

	waiting chan recorded
	lost    atomic.Int64 // that the chain does not tell of yet
	closed  atomic.Bool
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once
	err     error // valid once done is closed
	broken  bool  // the last write failed
	moved   bool  // the file is not where it was
}

// add takes an entry, or counts it as lost.
func (q *queue) add(r recorded) {
	if !q.closed.Load() {
		select {
		case q.waiting <- r:
			return
		default: // the disk does not keep up
		}
	}
	q.lose(1)
}

func (q *queue) lose(n int) {
	q.lost.Add(int64(n))
	q.missing.Add(context.Background(), int64(n))
}

// close ends the queue, and returns when its last line is on the disk.
func (q *queue) close() error {
	q.once.Do(func() {
		q.closed.Store(true)
		close(q.stop)
	})
	<-q.done
	return q.err
}

// run writes until close.
func (q *queue) run() {
	defer close(q.done)
	syncs, heads := time.NewTicker(syncPeriod), time.NewTicker(headPeriod)
	defer syncs.Stop()
	defer heads.Stop()
	told := q.chain.head
	for {
		select {
		case first := <-q.waiting:
			q.write(first)
		case <-syncs.C:
			if q.lost.Load() > 0 {
				q.write()
			}
			q.result(0, q.chain.sync())
			q.follow()
		case <-heads.C:
			if told != q.chain.head {
				told = q.chain.head
				q.log.Info("audit log", q.where()...)
			}
		case <-q.stop:
			q.end()
			return
		}
	}
}

// follow says once when somebody moved the file, or removed it, under the process that writes it.
func (q *queue) follow() {
	moved := q.chain.elsewhere()
	if moved && !q.moved {
		q.log.Error("the audit log was moved or removed while it is written, and its lines go where it is now; "+
			"put it back, or restart the process", zap.String("file", q.chain.path))
	}
	q.moved = moved
}

// end writes what still waits, and says where the chain ends.
func (q *queue) end() {
	for q.write(); len(q.waiting) > 0; {
		q.write()
	}
	_, err := q.chain.add(own(ends, nil))
	q.err = q.chain.close()
	q.result(0, err)
	q.log.Info("audit log ended", append(q.where(), zap.Int64("lost", q.lost.Load()))...)
}

// where is what one has to know to see that the end of the file is missing.
func (q *queue) where() []zap.Field {
	return []zap.Field{zap.String("file", q.chain.path), zap.Uint64("lines", q.chain.n), zap.String("head", q.chain.head)}
}

// write adds entries and all that wait, up to a batch, and says before them how many were lost.
func (q *queue) write(entries ...recorded) {
	for len(entries) < batch && len(q.waiting) > 0 {
		entries = append(entries, <-q.waiting)
	}
	var lines []line
	lost := q.lost.Load()
	if lost > 0 {
		lines = append(lines, gap(lost))
	}
	for _, e := range entries {
		lines = append(lines, lineOf(e))
		q.entries.Add(context.Background(), 1, metric.WithAttributes(attribute.String("kind", string(e.Kind))))
	}
	written, err := q.chain.add(lines...)
	if lost > 0 {
		if written > 0 {
			q.lost.Add(-lost)
			q.log.Error("entries of the audit log were lost", zap.Int64("entries", lost))
		}
		written = max(0, written-1)
	}
	q.result(len(entries)-written, err)
}

// result notes how the disk does, once for each change.
func (q *queue) result(lost int, err error) {
	if lost > 0 {
		q.lose(lost)
	}
	if err == nil {
		if q.broken {
			q.log.Info("the audit log is written again", zap.String("file", q.chain.path))
		}
		q.broken = false
		return
	}
	if !q.broken {
		q.log.Error("the audit log cannot be written; what is lost meanwhile is counted", zap.String("file", q.chain.path), zap.Error(err))
	}
	q.broken = true
}
