// Package inmem implements trace.Store in RAM. The simulation uses it, and package tracetest compares it with the
// store in Redis. It is simple rather than fast, and it loses all data when its process ends.
package inmem

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/tracelog"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

var _ trace.Store = (*Store)(nil)

// Hook runs around every call of a store. It decides whether and when the call is made, and what its caller learns.
// op names the method, and session is the session that the call belongs to (empty when it belongs to none).
type Hook func(ctx context.Context, op, session string, call func() error) error

// Store keeps traces in RAM. Create it with New. It is safe for concurrent use.
type Store struct {
	*data
	hook Hook
}

// data is shared by a store and all stores that With returned.
type data struct {
	clock func() time.Time

	mu        sync.Mutex
	traces    map[trace.Ref]*record
	open      map[trace.Ref]time.Time // when the lease of the owner expires
	stops     []trace.StopRequest
	followers map[trace.Ref]int
	erasures  map[trace.Subject]*erasure
}

// record is one trace.
type record struct {
	record     *troupev1.Trace // as its first claim wrote it
	owner      string
	epoch      int64
	events     []*troupev1.Event
	result     *troupev1.TurnResult // nil while the trace runs
	turn       trace.TurnInfo
	since      time.Time // when the timeout began
	isStopped  bool
	stopReason string
	claimed    time.Time // time of the last claim
}

// New returns an empty store. clock is the time of the store (nil means time.Now).
func New(clock func() time.Time) *Store {
	if clock == nil {
		clock = time.Now
	}
	pass := func(_ context.Context, _, _ string, call func() error) error { return call() }
	return &Store{hook: pass, data: &data{
		clock: clock, traces: map[trace.Ref]*record{}, open: map[trace.Ref]time.Time{}, followers: map[trace.Ref]int{},
		erasures: map[trace.Subject]*erasure{},
	}}
}

// With returns a store with the same data, whose calls go through the hook.
func (s *Store) With(hook Hook) *Store { return &Store{data: s.data, hook: hook} }

// run makes a call under the lock, through the hook.
func (s *Store) run(ctx context.Context, op string, ref trace.Ref, call func() error) error {
	s.mu.Lock()
	session := ""
	if r := s.traces[ref]; r != nil {
		session = r.record.GetSessionId()
	}
	s.mu.Unlock()
	return s.runFor(ctx, op, session, call)
}

func (s *Store) runFor(ctx context.Context, op, session string, call func() error) error {
	return s.hook(ctx, op, session, func() error {
		if err := ctx.Err(); err != nil {
			return failure.New(failure.SystemTimeout, "trace."+op, "the caller no longer waits").Because(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return call()
	})
}

// Claim implements trace.Store.
func (s *Store) Claim(ctx context.Context, c trace.Claim) (epoch int64, last uint64, err error) {
	const op = "trace.Claim"
	err = s.runFor(ctx, "Claim", c.Record.GetSessionId(), func() error {
		if s.isErased(c) {
			return erasedError(op, c.Ref())
		}
		r := s.traces[c.Ref()]
		if r == nil {
			r = &record{record: proto.CloneOf(c.Record)}
			r.turn.Labels, r.turn.Parent = c.Turn.Labels, c.Turn.Parent
		}
		switch {
		case r.result != nil:
			return failure.New(failure.TurnNotOpen, op, "the trace has ended")
		case r.turn.TurnEpoch > c.Turn.TurnEpoch:
			return failure.New(failure.Fenced, op, "another orchestrator drives the turn now").With("turn_epoch", fmt.Sprint(r.turn.TurnEpoch))
		}
		s.traces[c.Ref()] = r
		r.claim(c, s.clock())
		if c.Turn != (trace.TurnInfo{}) {
			s.open[c.Ref()] = s.clock().Add(trace.LeaseTime)
		}
		epoch, last = r.epoch, uint64(len(r.events))
		return nil
	})
	return epoch, last, err
}

// claim makes the claimant the owner.
func (r *record) claim(c trace.Claim, now time.Time) {
	r.owner, r.claimed = c.Record.GetOwner(), now
	r.epoch++
	r.append(c.Events)
	turn := c.Turn
	turn.Labels, turn.Parent = r.turn.Labels, r.turn.Parent
	if turn.Timeout == 0 {
		turn.Timeout = r.turn.Timeout
	} else {
		r.since = now
	}
	r.turn = turn
}

// append adds the events that continue the log.
func (r *record) append(events []*troupev1.Event) {
	for _, e := range events {
		if e.GetSequence() == uint64(len(r.events))+1 {
			r.events = append(r.events, proto.CloneOf(e))
		}
	}
}

// Append implements trace.Store.
func (s *Store) Append(ctx context.Context, ref trace.Ref, ownerEpoch, turnEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error {
	const op = "trace.Append"
	if len(events) == 0 {
		return nil
	}
	return s.run(ctx, "Append", ref, func() error {
		r := s.traces[ref]
		switch {
		case s.wasErased(ref):
			return erasedError(op, ref)
		case r == nil:
			return notFoundError(op, ref)
		case r.epoch != ownerEpoch:
			return failure.New(failure.Fenced, op, "another orchestrator drives the trace now").With("owner_epoch", fmt.Sprint(r.epoch))
		case events[0].GetSequence() > uint64(len(r.events))+1:
			return fmt.Errorf("%s: the trace has %d events, and the next one is %d", op, len(r.events), events[0].GetSequence())
		}
		r.append(events)
		r.turn.TurnEpoch = cmp.Or(turnEpoch, r.turn.TurnEpoch)
		if result != nil {
			r.result = proto.CloneOf(result)
		}
		return nil
	})
}

// Get implements trace.Store.
func (s *Store) Get(ctx context.Context, ref trace.Ref) (got *troupev1.Trace, err error) {
	err = s.run(ctx, "Get", ref, func() error {
		r := s.traces[ref]
		if r == nil {
			return notFoundError("trace.Get", ref)
		}
		got = r.toProto()
		return nil
	})
	return got, err
}

// Load implements trace.Store.
func (s *Store) Load(ctx context.Context, ref trace.Ref) (got trace.RunningTrace, err error) {
	err = s.run(ctx, "Load", ref, func() error {
		r := s.traces[ref]
		if r == nil {
			return notFoundError("trace.Load", ref)
		}
		got = trace.RunningTrace{Record: r.toProto(), Turn: r.turn, StopRequested: r.isStopped, StopReason: r.stopReason, TimeLeft: r.turn.Timeout}
		if !r.since.IsZero() {
			got.TimeLeft -= s.clock().Sub(r.since)
		}
		return nil
	})
	return got, err
}

// toProto returns the record as callers see it.
func (r *record) toProto() *troupev1.Trace {
	t := proto.CloneOf(r.record)
	t.Owner, t.OwnerEpoch, t.LastSequence = r.owner, r.epoch, uint64(len(r.events))
	t.RootTraceId = cmp.Or(t.GetRootTraceId(), t.GetTraceId())
	t.State = troupev1.TraceState_TRACE_STATE_RUNNING
	if r.result != nil {
		t.State, t.Result, t.Quarantined = troupev1.TraceState_TRACE_STATE_ENDED, proto.CloneOf(r.result), trace.IsQuarantined(r.result)
	}
	return t
}

// Events implements trace.Store.
func (s *Store) Events(ctx context.Context, ref trace.Ref, after uint64, limit int) (page []*troupev1.Event, err error) {
	err = s.run(ctx, "Events", ref, func() error {
		page = nil // the call may be made twice
		r := s.traces[ref]
		if r == nil {
			return nil
		}
		for _, e := range r.events[min(after, uint64(len(r.events))):] {
			if len(page) < limit {
				page = append(page, proto.CloneOf(e))
			}
		}
		return nil
	})
	return page, err
}

// List implements trace.Store.
func (s *Store) List(ctx context.Context, tenant string, q trace.Query) (all []*troupev1.Trace, err error) {
	err = s.runFor(ctx, "List", "", func() error {
		all = nil
		for ref, r := range s.traces {
			t := r.toProto()
			if ref.Tenant != tenant || q.OnlyQuarantined && !t.GetQuarantined() || q.Root != "" && t.GetRootTraceId() != q.Root {
				continue
			}
			if t.GetResult() != nil {
				t.Result.Text, t.Result.Pending = "", nil
			}
			all = append(all, t)
		}
		slices.SortFunc(all, func(a, b *troupev1.Trace) int {
			return cmp.Or(b.GetStarted().AsTime().Compare(a.GetStarted().AsTime()), cmp.Compare(b.GetTraceId(), a.GetTraceId()))
		})
		all = all[:min(q.Limit, len(all))]
		return nil
	})
	return all, err
}

// Decisions implements trace.DecisionIndex.
func (s *Store) Decisions(ctx context.Context, tenant string, q trace.DecisionQuery) (all []*troupev1.Decision, err error) {
	err = s.runFor(ctx, "Decisions", "", func() error {
		all = nil
		for ref, r := range s.traces {
			if ref.Tenant != tenant || q.Trace != "" && q.Trace != ref.Trace {
				continue
			}
			for _, e := range r.events {
				if d := tracelog.DecisionFromEvent(e); q.Matches(d) {
					all = append(all, d)
				}
			}
		}
		slices.Reverse(all)
		slices.SortStableFunc(all, func(a, b *troupev1.Decision) int {
			return cmp.Or(b.GetTime().AsTime().Compare(a.GetTime().AsTime()), cmp.Compare(a.GetTraceId(), b.GetTraceId()))
		})
		all = all[:min(q.Limit, len(all))]
		return nil
	})
	return all, err
}

func notFoundError(op string, ref trace.Ref) error {
	return failure.Newf(failure.NotFound, op, "trace_id: no trace %s is known; traces are kept for a while after they end", ref.Trace)
}

func erasedError(op string, ref trace.Ref) error {
	return failure.Newf(failure.SessionDeleted, op, "the session of trace %s was erased, and the trace with it; begin a new session", ref.Trace)
}

// erasure is the mark of an erased session or user.
type erasure struct {
	memory.ErasureReport
	counted map[string]bool    // sessions of a user that were counted
	traces  map[trace.Ref]bool // erased traces of a session
	next    time.Time          // when another caller may continue
}
