package trace

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Traces holds the logs of the traces that this replica drives, and gives access to all other traces through the
// store. It is safe for concurrent use.
type Traces struct {
	store Store
	log   *zap.Logger

	mu         sync.Mutex
	driven     map[Ref]*Log
	ended      []Ref // to be removed from the list of open traces with the next heartbeat
	heartbeats heartbeatStatus
}

// New returns an empty set of traces over the store.
func New(store Store, log *zap.Logger) *Traces {
	return &Traces{store: store, log: log, driven: map[Ref]*Log{}}
}

// Store returns the store of all traces.
func (t *Traces) Store() Store { return t.store }

// Open creates the log of a trace that this replica drives from now on. The first write creates the record, while
// the caller already works. A turn that was taken over may have stored events: Open then claims its trace first
// and reads them.
func (t *Traces) Open(ctx context.Context, c Claim, takenOver bool) (*Log, error) {
	l := newLog(t, c)
	if takenOver {
		if err := l.takeOver(ctx); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	t.driven[l.Ref()] = l
	t.mu.Unlock()
	return l, nil
}

// Close appends the last event to the log of a trace. It returns once that event is stored, ctx ends, or the store
// rejects the event. In the last case watchers get trace_orphaned.
func (t *Traces) Close(ctx context.Context, l *Log, last *troupev1.Event) error {
	err := l.finish(ctx, last)
	if err != nil {
		level := zap.ErrorLevel
		if failure.Is(err, failure.Fenced, failure.TurnNotOpen, failure.SessionDeleted) {
			level = zap.WarnLevel // another owner will end the trace, or it is erased
		}
		t.log.Log(level, "trace not ended in the store", zap.String("trace", l.Ref().Trace), zap.String("root_trace_id", l.root), zap.Error(err))
	} else {
		t.RemoveEnded(l.Ref())
	}
	t.removeLog(l)
	return err
}

// removeLog removes a log, unless this replica has since opened another log of the trace.
func (t *Traces) removeLog(l *Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.driven[l.Ref()] == l {
		delete(t.driven, l.Ref())
	}
}

// ownerEndTimeout is how long an owner may take to end the trace of a closed turn before another replica ends it.
// firstEventTimeout is how long it may take to store its first event. An owner that takes longer is fenced.
const (
	ownerEndTimeout   = 5 * time.Second
	firstEventTimeout = time.Second
)

// IsOrphaned reports whether another owner must end the trace of a closed turn. That is so when the owner died
// before it stored the last event or any event. It is also so when the trace is so old that it is no longer kept.
// IsOrphaned waits first, because the owner may be about to store the event. A trace that has ended, or that this
// replica drives, is not orphaned.
func (t *Traces) IsOrphaned(ctx context.Context, ref Ref) (bool, error) {
	patience, first := time.NewTimer(ownerEndTimeout), time.Now().Add(firstEventTimeout)
	defer patience.Stop()
	poll := time.NewTicker(ownerEndTimeout / 50)
	defer poll.Stop()
	for {
		if t.findLog(ref) != nil {
			return false, nil
		}
		stored, err := t.store.Get(ctx, ref)
		switch {
		case failure.Is(err, failure.NotFound):
			if !time.Now().Before(first) {
				return true, nil
			}
		case err != nil || stored.GetState() == troupev1.TraceState_TRACE_STATE_ENDED:
			return false, err
		}
		select {
		case <-poll.C:
		case <-patience.C:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// findLog returns the log of a trace, or nil if this replica does not drive it.
func (t *Traces) findLog(ref Ref) *Log {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.driven[ref]
}

// Abandon gives up the log of a trace without ending the trace. The orchestrator that takes the turn over
// continues the trace, and watchers see its events. ctx bounds the wait for a write in progress.
func (t *Traces) Abandon(ctx context.Context, l *Log) {
	l.abandon(ctx)
	t.removeLog(l)
}

// StoredEvents returns the events of a trace up to the given sequence that are still kept.
func (t *Traces) StoredEvents(ctx context.Context, ref Ref, last uint64) (all []*troupev1.Event, err error) {
	for after := uint64(0); after < last; after = all[len(all)-1].GetSequence() {
		page, err := t.store.Events(ctx, ref, after, pageSize)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
	return all, nil
}

// checkRange returns an error when the given sequence lies beyond the end of a trace.
func checkRange(after, last uint64) error {
	if after <= last {
		return nil
	}
	return failure.Newf(failure.UserInvalidInput, "trace.Watch",
		"after_sequence: the trace has %d events so far, and %d was asked for", last, after)
}

// eventsExpiredError returns the error for a trace whose events are no longer kept.
func eventsExpiredError(ref Ref) error {
	return failure.Newf(failure.NotFound, "trace.Watch", "the events of trace %s are no longer kept", ref.Trace)
}

// orphanedError returns the error for a trace that no replica drives.
func orphanedError(ref Ref) error {
	return failure.New(failure.TraceOrphaned, "trace.Watch",
		"no orchestrator drives this trace any more; send the request again with its session_id and request_id to continue").With("trace_id", ref.Trace)
}
