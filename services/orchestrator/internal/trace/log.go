package trace

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Limits of one log (guarantees 2.5, F21).
const (
	MaxEvents  = 4096
	MaxBytes   = 16 << 20 // of stored events
	maxPassing = 16 << 20 // of ephemeral events, by what they take in memory; what comes after is not shown
	eventBytes = 256      // that an event takes in memory beside its fields
)

// Log is the event log of one trace, at the replica that drives it. Safe for concurrent use,
// but nothing is appended behind the last event.
type Log struct {
	traces *Traces
	store  Store
	ref    Ref
	claim  Claim  // as it was opened, without events; never changed
	root   string // trace with which the run began; not changed once the log is open
	writer sync.WaitGroup
	epoch  int64 // of the owner; 0 until claimed. Only the writer uses it.

	mu       sync.Mutex
	turn     int64             // epoch under which the turn is driven
	since    int               // items[:since] are of the epochs before
	items    []*troupev1.Event // durable and ephemeral, in the order in which they happened
	shown    int               // items[:shown] are stored, or need not be
	sequence uint64            // of the last durable event
	bytes    int               // of durable events
	passing  int               // bytes that the ephemeral events take
	term     uint64            // of the replica, in which the store took a write last
	writing  bool
	cancel   context.CancelFunc // of the writer
	ended    bool               // the last event is appended
	err      error              // why the rest will not be stored
	changed  chan struct{}      // closed and replaced at each change
	refused  chan struct{}      // closed with err
}

func newLog(t *Traces, c Claim) *Log {
	return &Log{
		traces: t, store: t.store, ref: c.Ref(), claim: c, root: c.Record.GetRootTraceId(), term: t.term(), turn: c.Terms.TurnEpoch,
		changed: make(chan struct{}), refused: make(chan struct{}),
	}
}

// takeOver claims the trace before anything is appended, and reads what it holds.
func (l *Log) takeOver(ctx context.Context) error {
	last, err := retry.Do(ctx, func(ctx context.Context) (last uint64, err error) {
		l.epoch, last, err = l.store.Claim(ctx, l.claim)
		return last, err
	})
	if err != nil {
		return err
	}
	for l.sequence < last {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]*troupev1.Event, error) {
			return l.store.Events(ctx, l.ref, l.sequence, pageSize)
		})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return forgotten(l.ref)
		}
		l.items = append(l.items, page...)
		for _, e := range page {
			l.bytes += proto.Size(e)
		}
		l.sequence = page[len(page)-1].GetSequence()
	}
	l.shown, l.since = len(l.items), len(l.items)
	if len(l.items) > 0 { // whoever asks for the turn again may say anything
		l.root = cmp.Or(l.items[0].GetRootTraceId(), l.ref.Trace)
	}
	return nil
}

// Root is the trace with which the run began that the trace belongs to (contract OC-10): what the
// owner says who began it.
func (l *Log) Root() string { return l.root }

// Items are the events of the log so far, in the order in which they happened.
func (l *Log) Items() []*troupev1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}

// Ref names the trace.
func (l *Log) Ref() Ref { return l.ref }

// Empty reports whether nothing was appended yet, by this owner or one before it.
func (l *Log) Empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sequence == 0
}

// Stage is the stage of the last event; INITIALIZE when there is none.
func (l *Log) Stage() troupev1.Stage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.items) == 0 {
		return troupev1.Stage_STAGE_INITIALIZE
	}
	return l.items[len(l.items)-1].GetStage()
}

// Refused is closed when the store will take no more: another owner has the trace, or ctx
// of the writes has ended.
func (l *Log) Refused() <-chan struct{} { return l.refused }

// Append adds an event. A durable one gets the next sequence; an ephemeral one stays at 0. It
// does not wait for the store; ctx bounds the write. Fails with resource_quota at
// MaxEvents and MaxBytes.
func (l *Log) Append(ctx context.Context, e *troupev1.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sequence >= MaxEvents || l.bytes >= MaxBytes {
		return failure.Newf(failure.ResourceQuota, "trace.Append",
			"the turn has %d events of %d bytes; a trace may have %d events and %d bytes", l.sequence, l.bytes, MaxEvents, MaxBytes)
	}
	l.add(ctx, e)
	return nil
}

// Stored returns once all durable events that were appended are stored. It fails with the cause
// of ctx when that ends before, and with trace_orphaned when the store takes no more. The turn
// waits for it where its events are all that is known of what it did.
func (l *Log) Stored(ctx context.Context) error {
	for {
		l.mu.Lock()
		left, _ := l.pending()
		changed, refused := l.changed, l.err != nil
		l.mu.Unlock()
		switch {
		case refused:
			return orphaned(l.ref)
		case len(left) == 0:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finish adds the last event and waits until all are stored, or ctx ends.
func (l *Log) finish(ctx context.Context, last *troupev1.Event) error {
	l.mu.Lock()
	l.add(ctx, last)
	l.ended = true
	l.mu.Unlock()
	l.await(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// await returns when nothing is being written any more. When ctx ends the writer is told
// to give up, whatever its own time.
func (l *Log) await(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cancel != nil {
			l.cancel()
		}
	})()
	l.writer.Wait()
}

var errAbandoned = errors.New("abandoned by its owner")

// abandon waits for what is being stored, or for ctx, and takes no more.
func (l *Log) abandon(ctx context.Context) {
	l.await(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = errAbandoned
		close(l.refused)
	}
	l.notify()
}

// add stamps and queues an event, and starts the writer when there is none. Callers hold
// the lock.
func (l *Log) add(ctx context.Context, e *troupev1.Event) {
	e.TraceId, e.SessionId, e.Turn, e.RootTraceId = l.ref.Trace, l.claim.Record.GetSessionId(), l.claim.Record.GetTurn(), l.root
	if size, ephemeral := passing(e); ephemeral {
		l.passing += size
		if size == 0 || l.passing > maxPassing {
			return
		}
	} else {
		l.sequence++
		e.Sequence = l.sequence
		l.bytes += proto.Size(e)
	}
	l.items = append(l.items, e)
	if e.GetSequence() == 0 && l.shown == len(l.items)-1 && l.term == l.traces.term() {
		l.shown++ // nothing before it waits for the store, and the trace is still this replica's
		l.notify()
		return
	}
	if e.GetSequence() > 0 && !l.writing && l.err == nil {
		ctx, l.cancel = context.WithCancel(ctx)
		l.writing = true
		l.writer.Go(func() { l.write(ctx) })
	}
}

// passing reports whether an event is ephemeral, and how many bytes it takes: all of it is kept,
// and not the text alone. One that says nothing takes none.
func passing(e *troupev1.Event) (size int, ephemeral bool) {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_ToolProgress:
		size = proto.Size(p.ToolProgress)
	case *troupev1.Event_TextDelta:
		size = len(p.TextDelta.GetText())
	default:
		return 0, false
	}
	if size == 0 {
		return 0, true
	}
	return eventBytes + proto.Size(e), true
}

// write stores what is pending, and what came meanwhile, until nothing is left.
func (l *Log) write(ctx context.Context) {
	for {
		l.mu.Lock()
		batch, upto := l.pending()
		if len(batch) == 0 || l.err != nil {
			l.cancel()
			l.shown, l.writing = upto, false
			l.notify()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()

		term := l.traces.term()
		_, err := retry.Do(ctx, func(ctx context.Context) (_ struct{}, err error) {
			defer panics.Recover("trace.Append", &err)
			return struct{}{}, l.put(ctx, batch)
		})

		l.mu.Lock()
		if err != nil {
			l.err = err
			close(l.refused)
		} else {
			l.shown, l.term = upto, term
		}
		l.notify()
		l.mu.Unlock()
	}
}

// pending are the durable events that are not stored yet, and how far the log can be shown
// once they are. After an error that is as far as it is shown already.
func (l *Log) pending() (batch []*troupev1.Event, upto int) {
	if l.err != nil {
		return nil, l.shown
	}
	for _, e := range l.items[l.shown:] {
		if e.GetSequence() > 0 {
			batch = append(batch, e)
		}
	}
	return batch, len(l.items)
}

// put stores events; the first write claims the trace.
func (l *Log) put(ctx context.Context, batch []*troupev1.Event) error {
	result := batch[len(batch)-1].GetTurnResult()
	l.mu.Lock()
	turn := l.turn
	l.mu.Unlock()
	if l.epoch == 0 {
		claim := l.claim
		claim.Events, claim.Terms.TurnEpoch = batch, turn
		epoch, _, err := l.store.Claim(ctx, claim)
		if err != nil {
			return err
		}
		l.epoch = epoch
		if result == nil {
			return nil
		}
	}
	return l.store.Append(ctx, l.ref, l.epoch, turn, batch, result)
}

// notify tells the watchers. Callers hold the lock.
func (l *Log) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Watch yields the events above after, as Traces.Watch does, and ephemeral ones as they come.
// A slow consumer holds up nobody.
func (l *Log) Watch(ctx context.Context, after uint64) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		next, err := l.position(after)
		for err == nil {
			fresh, changed, done := l.from(next)
			for _, e := range fresh {
				if !yield(e, nil) {
					return
				}
			}
			next += len(fresh)
			switch {
			case done:
				if err = l.refusal(); err == nil {
					return
				}
			case len(fresh) == 0:
				select {
				case <-changed:
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
		}
		yield(nil, err)
	}
}

// position is the index of the first item behind the given sequence.
func (l *Log) position(after uint64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := inRange(after, l.sequence); err != nil || after == 0 {
		return 0, err
	}
	i := slices.IndexFunc(l.items, func(e *troupev1.Event) bool { return e.GetSequence() == after })
	return i + 1, nil
}

// from returns what can be shown from an index on, a channel that is closed at the next
// change, and whether that is all there will ever be.
func (l *Log) from(next int) (fresh []*troupev1.Event, changed <-chan struct{}, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next < l.shown {
		fresh = l.items[next:l.shown:l.shown]
	}
	complete := l.ended && l.shown == len(l.items)
	return fresh, l.changed, complete || l.err != nil
}

func (l *Log) refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return nil
	}
	return orphaned(l.ref)
}
