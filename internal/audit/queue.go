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
	queueSize     = 4096             // entries that may wait for the disk
	maxBatch      = 256              // entries of one write
	syncPeriod    = time.Second      // interval of syncs to disk
	headLogPeriod = 10 * time.Minute // interval of logging the position of the chain
)

// queuedEntry is an entry with the time of its recording and the component that recorded it.
type queuedEntry struct {
	Entry
	component  string
	recordedAt time.Time
}

// queue passes entries to the chain. Its goroutine is the only user of the chain.
type queue struct {
	chain        *chain
	log          *zap.Logger
	entryCounter metric.Int64Counter
	lostCounter  metric.Int64Counter

	waiting     chan queuedEntry
	lost        atomic.Int64 // lost entries that are not yet counted in a line of the chain
	closed      atomic.Bool
	stop        chan struct{}
	done        chan struct{}
	once        sync.Once
	err         error // valid once done is closed
	writeFailed bool  // whether the last write failed
	fileMoved   bool  // whether the file was moved or removed
}

// enqueue adds an entry to the queue, or counts it as lost if the queue is full or closed.
func (q *queue) enqueue(r queuedEntry) {
	if !q.closed.Load() {
		select {
		case q.waiting <- r:
			return
		default: // the disk does not keep up
		}
	}
	q.addLost(1)
}

func (q *queue) addLost(n int) {
	q.lost.Add(int64(n))
	q.lostCounter.Add(context.Background(), int64(n))
}

// close stops the queue and waits until its last line is on disk.
func (q *queue) close() error {
	q.once.Do(func() {
		q.closed.Store(true)
		close(q.stop)
	})
	<-q.done
	return q.err
}

// run writes queued entries until close is called.
func (q *queue) run() {
	defer close(q.done)
	syncs, heads := time.NewTicker(syncPeriod), time.NewTicker(headLogPeriod)
	defer syncs.Stop()
	defer heads.Stop()
	loggedHead := q.chain.lastHash
	for {
		select {
		case first := <-q.waiting:
			q.write(first)
		case <-syncs.C:
			if q.lost.Load() > 0 {
				q.write()
			}
			q.logWriteResult(0, q.chain.sync())
			q.checkMoved()
		case <-heads.C:
			if loggedHead != q.chain.lastHash {
				loggedHead = q.chain.lastHash
				q.log.Info("audit log", q.positionFields()...)
			}
		case <-q.stop:
			q.finish()
			return
		}
	}
}

// checkMoved logs an error when it first finds the open file moved or removed.
func (q *queue) checkMoved() {
	moved := q.chain.hasMoved()
	if moved && !q.fileMoved {
		q.log.Error("the audit log was moved or removed, and lines still go to the old file; "+
			"put it back, or restart the process", zap.String("file", q.chain.path))
	}
	q.fileMoved = moved
}

// finish writes the queued entries and the last line, closes the file and logs the final position.
func (q *queue) finish() {
	for q.write(); len(q.waiting) > 0; {
		q.write()
	}
	_, err := q.chain.appendLines(logLine(actionEnd, nil))
	q.err = q.chain.close()
	q.logWriteResult(0, err)
	q.log.Info("audit log ended", append(q.positionFields(), zap.Int64("lost", q.lost.Load()))...)
}

// positionFields returns the log fields with which an operator can detect missing lines at the end of the file.
func (q *queue) positionFields() []zap.Field {
	return []zap.Field{zap.String("file", q.chain.path), zap.Uint64("lines", q.chain.lastNumber), zap.String("head", q.chain.lastHash)}
}

// write appends the given entries, and further queued ones up to one batch. If entries were lost, a line with
// their number comes first.
func (q *queue) write(entries ...queuedEntry) {
	for len(entries) < maxBatch && len(q.waiting) > 0 {
		entries = append(entries, <-q.waiting)
	}
	var lines []line
	lost := q.lost.Load()
	if lost > 0 {
		lines = append(lines, lossLine(lost))
	}
	for _, e := range entries {
		lines = append(lines, lineFromEntry(e))
		q.entryCounter.Add(context.Background(), 1, metric.WithAttributes(attribute.String("kind", string(e.Kind))))
	}
	written, err := q.chain.appendLines(lines...)
	if lost > 0 {
		if written > 0 {
			q.lost.Add(-lost)
			q.log.Error("entries of the audit log were lost", zap.Int64("entries", lost))
		}
		written = max(0, written-1)
	}
	q.logWriteResult(len(entries)-written, err)
}

// logWriteResult counts lost entries. It logs when writes begin to fail and when they succeed again.
func (q *queue) logWriteResult(lost int, err error) {
	if lost > 0 {
		q.addLost(lost)
	}
	if err == nil {
		if q.writeFailed {
			q.log.Info("the audit log can be written again", zap.String("file", q.chain.path))
		}
		q.writeFailed = false
		return
	}
	if !q.writeFailed {
		q.log.Error("the audit log cannot be written; lost entries are counted until its disk works again", zap.String("file", q.chain.path), zap.Error(err))
	}
	q.writeFailed = true
}
