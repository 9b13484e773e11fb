package trace

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Times of the roll. From the death of an owner to the next one it takes at most Vouch, and
// Interval with its jitter, and the time of the take-over; less with more replicas, which ask
// independently of each other.
const (
	Vouch    = 6 * time.Second // for so long an owner vouches at a time, by the clock of the store
	Interval = 2 * time.Second // between two calls of Beat, about
)

// Roll is the list of all traces that run, with until when somebody vouches for each. It is a
// hint to who looks for work: who really owns a trace is in its record, and whose turn it is
// in the memory service.
type Roll interface {
	// Beat vouches for traces, takes off the roll those that have ended, and takes some for
	// which nobody vouches any more: the caller vouches for them from then on. It hears what
	// was asked by Stop since the last call.
	Beat(ctx context.Context, b Beat) (Heard, error)
	// Free says that nobody vouches for a trace any more.
	Free(ctx context.Context, ref Ref) error
	// Stop asks the owner of a trace, now or later, to end it.
	Stop(ctx context.Context, s Stop) error
}

// Beat is what a replica says of its traces.
type Beat struct {
	Mine, Ended []Ref
	Vouch       time.Duration
	Take        int    // how many orphans at most
	After       string // Heard.Until of the beat before; empty: all that is kept
}

// Heard is what a replica hears with a beat.
type Heard struct {
	Taken []Ref
	Stops []Stop
	Until string
}

// Stop is the wish that a trace ends.
type Stop struct {
	Ref    Ref
	Reason string
}

// pulse is how well this replica is heard by the store.
type pulse struct {
	since time.Time // of the first beat after one that failed, or of the first of all
	last  time.Time // when it was heard last, or counted a term; zero: it never was
	terms uint64    // how often it was not heard for as long as it vouches
	until string
}

// Beat vouches for the traces that this replica drives, and returns orphans that are now its
// own to go on with, at most take, and what was asked of it. It is called about every
// Interval.
//
// It takes nothing before it was heard for Vouch without a failure: when the store was away,
// nobody could vouch, and the owners that live come first.
func (t *Traces) Beat(ctx context.Context, take int) (taken []Ref, stops []Stop, err error) {
	began := time.Now()
	t.mu.Lock()
	if t.heard.since.IsZero() || began.Sub(t.heard.since) < Vouch {
		take = 0
	}
	b := Beat{Mine: slices.Collect(maps.Keys(t.live)), Ended: t.ended, Vouch: Vouch, Take: take, After: t.heard.until}
	t.mu.Unlock()
	heard, err := t.store.Beat(ctx, b)
	t.term() // what was not heard in time is a lapse, before it is forgotten
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.heard.since = time.Time{}
		return nil, nil, err
	}
	if t.heard.since.IsZero() {
		t.heard.since = time.Now()
	}
	t.heard.last, t.heard.until = began, heard.Until
	t.ended = t.ended[len(b.Ended):]
	return heard.Taken, heard.Stops, nil
}

// Dismiss has a trace taken off the roll with the next beat.
func (t *Traces) Dismiss(ref Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, ref)
}

// term counts the times for which this replica was heard without a break. When a new one
// begins, its traces may have other owners: what is not stored is held back until the store
// has taken something in it, which it does from an owner only. A replica that never beats has
// one term.
func (t *Traces) term() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.heard.last.IsZero() && time.Since(t.heard.last) > Vouch {
		t.heard.terms++
		t.heard.last = time.Now()
	}
	return t.heard.terms
}
