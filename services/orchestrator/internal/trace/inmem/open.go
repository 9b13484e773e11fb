package inmem

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Heartbeat implements trace.OpenTraces. The cursor is the number of stop requests that were read.
func (s *Store) Heartbeat(ctx context.Context, b trace.Heartbeat) (heard trace.HeartbeatReply, err error) {
	err = s.runFor(ctx, "Heartbeat", "", func() error {
		now := s.clock()
		for _, ref := range b.Owned {
			s.open[ref] = now.Add(b.LeaseTime)
		}
		for _, ref := range b.Ended {
			delete(s.open, ref)
		}
		heard.TakenOver = s.expired(b.MaxTakeovers)
		for _, ref := range heard.TakenOver {
			s.open[ref] = now.Add(b.LeaseTime)
		}
		read, _ := strconv.Atoi(b.Cursor) // the empty cursor means all
		heard.Stops, heard.Cursor = slices.Clone(s.stops[read:]), strconv.Itoa(len(s.stops))
		return nil
	})
	return heard, err
}

// expired returns at most limit open traces whose lease has expired, the earliest first.
func (s *Store) expired(limit int) (refs []trace.Ref) {
	now := s.clock()
	for ref, until := range s.open {
		if !until.After(now) {
			refs = append(refs, ref)
		}
	}
	session := func(ref trace.Ref) string {
		if r := s.traces[ref]; r != nil {
			return r.record.GetSessionId()
		}
		return ""
	}
	slices.SortFunc(refs, func(a, b trace.Ref) int {
		return cmp.Or(s.open[a].Compare(s.open[b]), cmp.Compare(session(a), session(b)))
	})
	return refs[:min(limit, len(refs))]
}

// ReleaseLease implements trace.OpenTraces.
func (s *Store) ReleaseLease(ctx context.Context, ref trace.Ref) error {
	return s.run(ctx, "ReleaseLease", ref, func() error {
		s.open[ref] = s.clock()
		return nil
	})
}

// RequestStop implements trace.OpenTraces.
func (s *Store) RequestStop(ctx context.Context, stop trace.StopRequest) error {
	return s.run(ctx, "RequestStop", stop.Ref, func() error {
		r := s.traces[stop.Ref]
		if r == nil {
			return nil
		}
		if !r.isStopped {
			r.isStopped, r.stopReason = true, stop.Reason
		}
		s.stops = append(s.stops, stop)
		return nil
	})
}

// AddFollowers implements trace.OpenTraces.
func (s *Store) AddFollowers(ctx context.Context, ref trace.Ref, n int) (sum int, err error) {
	err = s.run(ctx, "AddFollowers", ref, func() error {
		s.followers[ref] += n
		sum = s.followers[ref]
		return nil
	})
	return sum, err
}
