// Package trace keeps the records and the event logs of traces: the ORCHESTRATOR tier.
//
// A Log belongs to the replica that drives its trace. Events are numbered when they are
// appended, stored in that order, and shown to watchers only once they are stored; writes
// of a log follow each other, and whatever was appended meanwhile goes with the next one.
// Other replicas read a trace as it is stored.
//
// Owners vouch for their traces again and again; a trace for which nobody does any more is
// taken by whoever asks next (docs/adr/0016). That costs each replica one write in two
// seconds for all its traces together, and a turn none: it is put on the roll beside the
// claim, in the same round trip, and taken off with one of those writes.
package trace

import (
	"context"
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
	// when the trace has ended; fenced when it was claimed under a higher epoch of its turn;
	// session_deleted when its session, or the trace above it, is erased: then nothing is left of
	// the claim, and somebody erases its session.
	Claim(ctx context.Context, c Claim) (ownerEpoch int64, last uint64, err error)
	// Append stores events in order, and under which epoch the turn is driven by now; 0: as
	// before. Their sequences must go on where the log ends; those that are stored already are
	// passed over. A result ends the trace. Modes: fenced when another owner has claimed it,
	// not_found.
	Append(ctx context.Context, ref Ref, ownerEpoch, turnEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error
	// Get returns a record. Modes: not_found.
	Get(ctx context.Context, ref Ref) (*troupev1.Trace, error)
	// Load returns a record with what is needed to go on with it. Modes: not_found.
	Load(ctx context.Context, ref Ref) (Running, error)
	// Events returns at most limit stored events above after, in order.
	Events(ctx context.Context, ref Ref, after uint64, limit int) ([]*troupev1.Event, error)
	// List returns the latest records, newest first, without the texts of their results.
	List(ctx context.Context, tenant string, q Query) ([]*troupev1.Trace, error)
	Roll
	Audit
	Erasures
}

// Query says which traces are wanted.
type Query struct {
	Root        string // those of the run that began with this trace; empty: of all
	Quarantined bool   // only those that are
	Limit       int    // above 0
}

// Quarantined reports whether a trace with this result is given to no worker and no orchestrator
// any more, because it took down those that had it (guarantee F22).
func Quarantined(result *troupev1.TurnResult) bool {
	return result.GetFailure().GetMode() == troupev1.FailureMode_FAILURE_MODE_ATTEMPTS_EXHAUSTED
}

// Claim is a trace as its owner opens it.
type Claim struct {
	Tenant string
	Record *troupev1.Trace
	Terms  Terms
	Events []*troupev1.Event
}

// Ref names the trace.
func (c Claim) Ref() Ref { return Ref{c.Tenant, c.Record.GetTraceId()} }

// Terms are on what a turn runs: what another owner needs to go on with it, beside its record
// and what the memory service keeps of it.
type Terms struct {
	User        string
	Fingerprint string        // of the request
	TurnEpoch   int64         // under which the turn is driven: the trace goes with the highest
	Timeout     time.Duration // of the turn, from this claim on; 0: as it was before
	Credentials bool          // the request had some. They are stored nowhere.
	Labels      string        // of the request, as its first owner wrote them; later claims leave them
	// Above is the trace whose agent asks for this one, in a session of its own: with the session
	// of that it is erased. Empty: none does. Later claims leave it too.
	Above string
}

// Running is what an owner finds that goes on with a trace.
type Running struct {
	Record  *troupev1.Trace
	Terms   Terms
	Left    time.Duration // of the timeout, by the clock of the store; below zero when it is over
	Stopped bool          // somebody asked that it ends, with the reason
	Reason  string
}

// Traces are the traces that this replica drives, and a view of all others. Safe for
// concurrent use.
type Traces struct {
	store Store
	log   *zap.Logger

	mu    sync.Mutex
	live  map[Ref]*Log
	ended []Ref // to be taken off the roll
	heard pulse
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
func (t *Traces) Open(ctx context.Context, c Claim, takenOver bool) (*Log, error) {
	l := newLog(t, c)
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
		level := zap.ErrorLevel
		if failure.Is(err, failure.Fenced, failure.TurnNotOpen, failure.SessionDeleted) {
			level = zap.WarnLevel // it is another's to end, or erased
		}
		t.log.Log(level, "trace not ended in the store", zap.String("trace", l.ref.Trace), zap.String("root_trace_id", l.root), zap.Error(err))
	} else {
		t.Dismiss(l.ref)
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
// does, and firstTime what it has to store anything of it. One that needs longer is fenced.
const (
	ownerTime = 5 * time.Second
	firstTime = time.Second
)

// Orphaned reports whether a trace needs somebody to end it whose turn is closed: its owner
// went away before it stored the last event, or any, or so long ago that the trace is no
// longer kept. It waits first, for the owner may be about to. A trace that is driven here, or
// has ended, is none.
func (t *Traces) Orphaned(ctx context.Context, ref Ref) (bool, error) {
	patience, first := time.NewTimer(ownerTime), time.Now().Add(firstTime)
	defer patience.Stop()
	look := time.NewTicker(ownerTime / 50)
	defer look.Stop()
	for {
		if t.driven(ref) != nil {
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
		case <-look.C:
		case <-patience.C:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// driven is the log of a trace that this replica drives; nil when it does not.
func (t *Traces) driven(ref Ref) *Log {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live[ref]
}

// Abandon gives up the log of a trace without an end: whoever takes the turn over goes on
// with it, and watchers go on with what that one stores. ctx bounds the wait for a write
// under way.
func (t *Traces) Abandon(ctx context.Context, l *Log) {
	l.abandon(ctx)
	t.forget(l)
}

// Stored are the events of a trace up to last, as far as they are still kept.
func (t *Traces) Stored(ctx context.Context, ref Ref, last uint64) (all []*troupev1.Event, err error) {
	for after := uint64(0); after < last; after = all[len(all)-1].GetSequence() {
		page, err := t.store.Events(ctx, ref, after, pageSize)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
	return all, nil
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
