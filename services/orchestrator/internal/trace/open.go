package trace

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/jitter"
)

// Durations for the leases of open traces. A trace whose owner dies is taken over after at most LeaseTime, plus
// HeartbeatInterval with its jitter, plus the time of the takeover. More replicas shorten the wait, because each
// sends its own heartbeats.
const (
	LeaseTime         = 6 * time.Second // the duration of a lease, by the clock of the store
	HeartbeatInterval = 2 * time.Second // about how long between two heartbeats
)

// WithJitter returns a random duration close to d, so that replicas do not call at the same moment.
func WithJitter(d time.Duration) time.Duration { return d*3/4 + jitter.Below(d/2) }

// OpenTraces is the list of all open traces, each with the time when its owner's lease expires. It is only a hint
// for replicas that look for orphaned traces. The record of a trace determines its owner, and the memory service
// determines who holds its turn.
type OpenTraces interface {
	// Heartbeat renews the leases of traces and removes ended traces from the list. It also takes over some traces
	// whose lease has expired: the caller then holds their leases. It returns the stop requests since the last
	// call.
	Heartbeat(ctx context.Context, b Heartbeat) (HeartbeatReply, error)
	// ReleaseLease ends the lease of an open trace.
	ReleaseLease(ctx context.Context, ref Ref) error
	// RequestStop asks the owner of a trace to end it. A later owner receives the request too.
	RequestStop(ctx context.Context, s StopRequest) error
	// AddFollowers adds n to the number of clients without whom the turn of a trace is cancelled, and returns the sum.
	// The trace need not exist yet. A number that did not change for FollowersTime is forgotten.
	AddFollowers(ctx context.Context, ref Ref, n int) (int, error)
}

// FollowersTime is how long the store keeps the number of a trace's followers after its last change. No turn runs that
// long.
const FollowersTime = 15 * time.Minute

// Heartbeat is the request that a replica sends about every HeartbeatInterval.
type Heartbeat struct {
	Owned, Ended []Ref
	LeaseTime    time.Duration // the duration of the leases
	MaxTakeovers int           // maximum number of traces to take over
	Cursor       string        // Cursor of the last HeartbeatReply (empty means that all stops are wanted)
}

// HeartbeatReply is the reply of the store to a heartbeat.
type HeartbeatReply struct {
	TakenOver []Ref
	Stops     []StopRequest
	Cursor    string
}

// StopRequest is a request to end a trace.
type StopRequest struct {
	Ref    Ref
	Reason string
}

// heartbeatStatus records whether the heartbeats of this replica reach the store.
type heartbeatStatus struct {
	succeedingSince time.Time // when the current series of successful heartbeats began (zero after a failure)
	lastSuccess     time.Time // time of the last successful heartbeat or of the last lapse (zero when there is none)
	lapses          uint64    // how many times no heartbeat succeeded for the duration of a lease
	stopsCursor     string
}

// Heartbeat renews the leases of the traces that this replica drives. It returns at most take traces that the
// replica must now continue, and the requested stops. It is called about every HeartbeatInterval.
//
// Heartbeat takes over nothing until heartbeats have succeeded for the duration of a lease. While the store was
// unavailable no owner could renew a lease, and owners that are still alive come first.
func (t *Traces) Heartbeat(ctx context.Context, take int) (taken []Ref, stops []StopRequest, err error) {
	began := time.Now()
	t.mu.Lock()
	if t.heartbeats.succeedingSince.IsZero() || began.Sub(t.heartbeats.succeedingSince) < LeaseTime {
		take = 0
	}
	b := Heartbeat{Owned: slices.Collect(maps.Keys(t.driven)), Ended: t.ended, LeaseTime: LeaseTime, MaxTakeovers: take, Cursor: t.heartbeats.stopsCursor}
	t.mu.Unlock()
	reply, err := t.store.Heartbeat(ctx, b)
	t.currentTerm() // counts a lapse before the time of the last heartbeat is overwritten
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.heartbeats.succeedingSince = time.Time{}
		return nil, nil, err
	}
	if t.heartbeats.succeedingSince.IsZero() {
		t.heartbeats.succeedingSince = time.Now()
	}
	t.heartbeats.lastSuccess, t.heartbeats.stopsCursor = began, reply.Cursor
	t.ended = t.ended[len(b.Ended):]
	return reply.TakenOver, reply.Stops, nil
}

// RemoveEnded removes a trace from the list of open traces with the next heartbeat.
func (t *Traces) RemoveEnded(ref Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, ref)
}

// currentTerm returns the number of the current term. A term is a period in which the heartbeats of this replica
// succeeded in time. If the last success is longer ago than LeaseTime, currentTerm begins a new term.
//
// After a lapse, other replicas may own the traces of this one. Events that are not stored are therefore withheld until
// the store accepts a write in the new term, because it accepts writes of the owner only. A replica without heartbeats
// has a single term.
func (t *Traces) currentTerm() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.heartbeats.lastSuccess.IsZero() && time.Since(t.heartbeats.lastSuccess) > LeaseTime {
		t.heartbeats.lapses++
		t.heartbeats.lastSuccess = time.Now()
	}
	return t.heartbeats.lapses
}
