// Package trace keeps the records and the event logs of traces: the ORCHESTRATOR tier.
//
// A Log belongs to the replica that drives its trace. Events are numbered when they are
// appended, stored in that order, and shown to watchers only once they are stored; writes
// of a log follow each other, and whatever was appended meanwhile goes with the next one.
package trace

import (
	"context"
	"iter"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Ref names a trace of a tenant.
type Ref struct {
	Tenant string
	Trace  string
}

// Store is where traces are durable. Errors are failure.Errors; beyond the modes that a
// method lists, any may fail with system_network or system_timeout, after which a write
// may have happened: repeat it.
type Store interface {
	// Claim makes the record with its first events, or takes over one that has not ended,
	// with a higher owner epoch and the record's owner. It returns the owner epoch and the
	// last sequence. Events that are stored already are passed over. Modes: turn_not_open
	// when the trace has ended.
	Claim(ctx context.Context, tenant string, record *troupev1.Trace, events []*troupev1.Event) (ownerEpoch int64, last uint64, err error)
	// Append stores events in order. Their sequences must go on where the log ends; those
	// that are stored already are passed over. A result ends the trace. Modes: fenced when
	// another owner has claimed it, not_found.
	Append(ctx context.Context, ref Ref, ownerEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error
	// Get returns a record. Modes: not_found.
	Get(ctx context.Context, ref Ref) (*troupev1.Trace, error)
	// Events returns at most limit stored events above after, in order.
	Events(ctx context.Context, ref Ref, after uint64, limit int) ([]*troupev1.Event, error)
	// List returns the latest records, newest first.
	List(ctx context.Context, tenant string, limit int) ([]*troupev1.Trace, error)
}

// Traces are the traces that this replica drives, and a view of all others. Safe for
// concurrent use.
type Traces struct {
	store Store
	log   *zap.Logger

	mu   sync.Mutex
	live map[Ref]*Log
}

// New returns an empty set over the store.
func New(store Store, log *zap.Logger) *Traces {
	return &Traces{store: store, log: log, live: map[Ref]*Log{}}
}

// Store is the store of all traces.
func (t *Traces) Store() Store { return t.store }

// Open begins the log of a trace that this replica drives from now on. The record is made
// with the first write, beside the caller's work. When the turn was taken over the trace
// may have events already: Open claims it and reads them first.
func (t *Traces) Open(ctx context.Context, tenant string, record *troupev1.Trace, takenOver bool) (*Log, error) {
	l := newLog(t.store, Ref{tenant, record.GetTraceId()}, record)
	if takenOver {
		if err := l.takeOver(ctx); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	t.live[l.ref] = l
	t.mu.Unlock()
	return l, nil
}

// Close ends the log of a trace with its last event and returns once that is stored, or
// ctx ends, or the store refuses: then watchers are told that the trace is orphaned.
func (t *Traces) Close(ctx context.Context, l *Log, last *troupev1.Event) error {
	err := l.finish(ctx, last)
	if err != nil {
		t.log.Error("trace not ended in the store", zap.String("trace", l.ref.Trace), zap.Error(err))
	}
	t.forget(l)
	return err
}

// forget drops the log, unless a successor on this replica has taken its place.
func (t *Traces) forget(l *Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[l.ref] == l {
		delete(t.live, l.ref)
	}
}

// ownerTime is what an owner has to end the trace of a turn that is closed, before another
// does. One that needs longer is fenced, and its watchers have to ask again.
const ownerTime = 5 * time.Second

// End ends a trace whose turn is closed, and whose owner went away before it stored the
// last event. It waits first, for the owner may be about to. A trace that is driven here,
// or has ended, is left alone. Modes: not_found.
func (t *Traces) End(ctx context.Context, tenant string, record *troupev1.Trace, last *troupev1.Event) error {
	ref := Ref{tenant, record.GetTraceId()}
	if alive, err := t.awaitEnd(ctx, ref); alive || err != nil {
		return err
	}
	l, err := t.Open(ctx, tenant, record, true)
	if failure.Is(err, failure.TurnNotOpen) {
		return nil // its owner was faster
	}
	if err != nil {
		return err
	}
	return t.Close(ctx, l, last)
}

// awaitEnd reports whether nothing has to be done about a trace: this replica drives it, or
// it ended within the time of its owner.
func (t *Traces) awaitEnd(ctx context.Context, ref Ref) (bool, error) {
	patience := time.NewTimer(ownerTime)
	defer patience.Stop()
	look := time.NewTicker(ownerTime / 50)
	defer look.Stop()
	for {
		t.mu.Lock()
		_, live := t.live[ref]
		t.mu.Unlock()
		if live {
			return true, nil
		}
		stored, err := t.store.Get(ctx, ref)
		if err != nil || stored.GetState() == troupev1.TraceState_TRACE_STATE_ENDED {
			return true, err
		}
		select {
		case <-look.C:
		case <-patience.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// Abandon gives up the log of a trace without an end: watchers are told that it is
// orphaned, and whoever takes the turn over goes on with it. ctx bounds the wait for a
// write under way.
func (t *Traces) Abandon(ctx context.Context, l *Log) {
	l.abandon(ctx)
	t.forget(l)
}

// pageSize is how many stored events are read at once.
const pageSize = 256

// Watch yields the events of a trace above after, those that happened and then those that
// come, without a gap, up to the turn result. An error is the last item: not_found,
// user_invalid_input when the trace does not go as far as after, or trace_orphaned when it
// has not ended and nobody drives it.
func (t *Traces) Watch(ctx context.Context, ref Ref, after uint64) iter.Seq2[*troupev1.Event, error] {
	t.mu.Lock()
	l := t.live[ref]
	t.mu.Unlock()
	if l != nil {
		return l.Watch(ctx, after)
	}
	return func(yield func(*troupev1.Event, error) bool) {
		record, err := t.store.Get(ctx, ref)
		if err == nil {
			err = inRange(after, record.GetLastSequence())
		}
		for err == nil && after < record.GetLastSequence() {
			var page []*troupev1.Event
			if page, err = t.store.Events(ctx, ref, after, pageSize); err != nil {
				break
			}
			if len(page) == 0 {
				err = forgotten(ref)
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.GetSequence()
			}
		}
		if err == nil && record.GetState() != troupev1.TraceState_TRACE_STATE_ENDED {
			err = orphaned(ref)
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func inRange(after, last uint64) error {
	if after <= last {
		return nil
	}
	return failure.Newf(failure.UserInvalidInput, "trace.Watch", "after_sequence: the trace has %d events so far, and %d was asked for", last, after)
}

func forgotten(ref Ref) error {
	return failure.Newf(failure.NotFound, "trace.Watch", "the events of trace %s are no longer kept", ref.Trace)
}

func orphaned(ref Ref) error {
	return failure.New(failure.TraceOrphaned, "trace.Watch",
		"nobody drives this trace any more; send the request again with its session_id and request_id to go on").With("trace_id", ref.Trace)
}
