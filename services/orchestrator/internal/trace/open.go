package trace

import (
	"context"
	"maps"
	"slices"
	"time"
)

// These are the times of the leases of open traces. A trace whose owner dies is taken over after at most
// LeaseTime, plus HeartbeatInterval with its jitter, plus the time of the takeover. With more replicas it takes
// less, because they ask independently.
const (
	LeaseTime         = 6 * time.Second // the duration of a lease, by the clock of the store
	HeartbeatInterval = 2 * time.Second // about how long between two heartbeats
)

// OpenTraces is the list of all open traces, each with the end of its owner's lease. It is only a hint for
// replicas that look for work: the record of a trace says who owns it, and the memory service says who
// holds its turn.
type OpenTraces interface {
	// Heartbeat renews the leases of traces, removes traces that have ended, and takes over some whose lease
	// expired: the caller has their leases from then on. It returns the stops that were requested since
	// the last call.
	Heartbeat(ctx context.Context, b Heartbeat) (HeartbeatReply, error)
	// ReleaseLease ends the lease of a trace.
	ReleaseLease(ctx context.Context, ref Ref) error
	// Stop asks the owner of a trace, now or later, to end it.
	Stop(ctx context.Context, s Stop) error
}

// Heartbeat is the heartbeat of a replica.
type Heartbeat struct {
	Owned, Ended []Ref
	LeaseTime    time.Duration // the duration of the leases
	MaxTaken     int           // how many traces to take over at most
	Cursor       string        // Cursor of the last HeartbeatReply (empty means that all stops are wanted)
}

// HeartbeatReply is the reply to a heartbeat.
type HeartbeatReply struct {
	TakenOver []Ref
	Stops     []Stop
	Cursor    string
}

// Stop is a request to end a trace.
type Stop struct {
	Ref    Ref
	Reason string
}

// heartbeatStatus records whether the heartbeats of this replica reach the store.
type heartbeatStatus struct {
	since time.Time // of the first heartbeat after a failed one, or of the first at all
	last  time.Time // of the last heartbeat that succeeded, or of the last lapse (zero means none yet)
	terms uint64    // how often no heartbeat succeeded for the duration of a lease
	until string
}

// Heartbeat renews the leases of the traces that this replica drives. It returns at most take traces that the
// replica must now continue, and the stops that were requested. It is called about every HeartbeatInterval.
//
// It takes over nothing until heartbeats have succeeded for the duration of a lease: while the store was away
// no owner could renew a lease, and living owners come first.
func (t *Traces) Heartbeat(ctx context.Context, take int) (taken []Ref, stops []Stop, err error) {
	began := time.Now()
	t.mu.Lock()
	if t.heartbeats.since.IsZero() || began.Sub(t.heartbeats.since) < LeaseTime {
		take = 0
	}
	b := Heartbeat{Owned: slices.Collect(maps.Keys(t.driven)), Ended: t.ended, LeaseTime: LeaseTime, MaxTaken: take, Cursor: t.heartbeats.until}
	t.mu.Unlock()
	heard, err := t.store.Heartbeat(ctx, b)
	t.term() // counts a lapse before the time of the last heartbeat is overwritten
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.heartbeats.since = time.Time{}
		return nil, nil, err
	}
	if t.heartbeats.since.IsZero() {
		t.heartbeats.since = time.Now()
	}
	t.heartbeats.last, t.heartbeats.until = began, heard.Cursor
	t.ended = t.ended[len(b.Ended):]
	return heard.TakenOver, heard.Stops, nil
}

// RemoveEnded removes a trace from the list of open traces with the next heartbeat.
func (t *Traces) RemoveEnded(ref Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, ref)
}

// term returns the number of the current term: a period in which heartbeats succeeded without a lapse.
// After a lapse the traces of this replica may have other owners. So events that are not stored are held
// back until the store has taken a write in the new term, which it does only from the owner. A replica
// that sends no heartbeats has one term.
func (t *Traces) term() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.heartbeats.last.IsZero() && time.Since(t.heartbeats.last) > LeaseTime {
		t.heartbeats.terms++
		t.heartbeats.last = time.Now()
	}
	return t.heartbeats.terms
}
