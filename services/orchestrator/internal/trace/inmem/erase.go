package inmem

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/internal/tracelog"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// erasureTimeout is how long other callers leave an erasure to the caller that works on it.
const erasureTimeout = 30 * time.Second

// isErased reports whether the session of a claim, or the trace of its parent, is erased.
func (s *Store) isErased(c trace.Claim) bool {
	marked := s.erasures[trace.Subject{Tenant: c.Tenant, Session: c.Record.GetSessionId()}] != nil
	return marked || c.Turn.Parent != "" && s.wasErased(trace.Ref{Tenant: c.Tenant, Trace: c.Turn.Parent})
}

// wasErased reports whether a trace was erased.
func (s *Store) wasErased(ref trace.Ref) bool {
	for subject, e := range s.erasures {
		if subject.Tenant == ref.Tenant && e.traces[ref] {
			return true
		}
	}
	return false
}

// BeginErasure implements trace.Eraser.
func (s *Store) BeginErasure(ctx context.Context, subject trace.Subject, by string, anew bool) (report memory.ErasureReport, err error) {
	err = s.runFor(ctx, "BeginErasure", subject.Session, func() error {
		e := s.erasures[subject]
		if e == nil || anew && !e.Ended.IsZero() {
			e = &erasure{counted: map[string]bool{}, traces: map[trace.Ref]bool{}, ErasureReport: memory.ErasureReport{
				Session: subject.Session, User: subject.User, RequestedBy: by, Began: s.clock().UTC().Truncate(time.Millisecond),
			}}
			s.erasures[subject] = e
		}
		e.next = s.clock().Add(erasureTimeout)
		report = e.report()
		return nil
	})
	return report, err
}

// report returns a copy for a caller.
func (e *erasure) report() memory.ErasureReport {
	r := e.ErasureReport
	r.Removed = maps.Clone(r.Removed)
	return r
}

// ChildSessions implements trace.Eraser.
func (s *Store) ChildSessions(ctx context.Context, ref session.Ref) (found []string, err error) {
	err = s.runFor(ctx, "ChildSessions", ref.Session, func() error {
		children, prefix := map[string]bool{}, turnctx.ChildSessionPrefix(ref.Session)
		for at, r := range s.sessionTraces(ref) {
			r.epoch++ // fences the owner
			for _, e := range r.events {
				children[e.GetSubtaskStarted().GetSessionId()] = true
			}
			for _, other := range s.traces {
				if other.turn.Parent == at.Trace {
					children[other.record.GetSessionId()] = true
				}
			}
		}
		maps.DeleteFunc(children, func(id string, _ bool) bool { return !strings.HasPrefix(id, prefix) })
		found = slices.Sorted(maps.Keys(children))
		return nil
	})
	return found, err
}

// sessionTraces returns the traces of a session.
func (s *Store) sessionTraces(ref session.Ref) map[trace.Ref]*record {
	all := maps.Clone(s.traces)
	maps.DeleteFunc(all, func(at trace.Ref, r *record) bool {
		return at.Tenant != ref.Tenant || r.record.GetSessionId() != ref.Session
	})
	return all
}

// SessionsOfUser implements trace.Eraser.
func (s *Store) SessionsOfUser(ctx context.Context, tenant, user string, until time.Time, limit int) (ids []string, err error) {
	err = s.runFor(ctx, "SessionsOfUser", "", func() error {
		found := map[string]bool{}
		mark := s.erasures[trace.Subject{Tenant: tenant, User: user}]
		for ref, r := range s.traces {
			id := r.record.GetSessionId()
			counted := mark != nil && mark.counted[id]
			if ref.Tenant == tenant && r.turn.User == user && !r.claimed.After(until) && !counted {
				found[id] = true
			}
		}
		ids = slices.Sorted(maps.Keys(found))
		ids = ids[:min(limit, len(ids))]
		return nil
	})
	return ids, err
}

// EraseTraces implements trace.Eraser.
func (s *Store) EraseTraces(ctx context.Context, ref session.Ref) error {
	return s.runFor(ctx, "EraseTraces", ref.Session, func() error {
		mark := s.erasures[trace.Subject{Tenant: ref.Tenant, Session: ref.Session}]
		if mark == nil {
			return nil
		}
		for at, r := range s.sessionTraces(ref) {
			decisions := int64(0)
			for _, e := range r.events {
				if tracelog.DecisionFromEvent(e) != nil {
					decisions++
				}
			}
			mark.traces[at] = true
			mark.Add(map[string]int64{trace.KindTraces: 1, trace.KindEvents: int64(len(r.events)), trace.KindDecisions: decisions})
			delete(s.traces, at)
			delete(s.open, at)
			delete(s.followers, at)
		}
		return nil
	})
}

// AddRemoved implements trace.Eraser.
func (s *Store) AddRemoved(ctx context.Context, subject trace.Subject, of string, counts map[string]int64) error {
	return s.runFor(ctx, "AddRemoved", subject.Session, func() error {
		if e := s.erasures[subject]; e != nil && !e.counted[of] {
			e.counted[of] = true
			e.Add(counts)
		}
		return nil
	})
}

// EndErasure implements trace.Eraser.
func (s *Store) EndErasure(ctx context.Context, subject trace.Subject) (report memory.ErasureReport, err error) {
	err = s.runFor(ctx, "EndErasure", subject.Session, func() error {
		e := s.erasures[subject]
		if e == nil {
			return nil
		}
		if e.Ended.IsZero() {
			e.Ended = s.clock().UTC().Truncate(time.Millisecond)
		}
		report = e.report()
		return nil
	})
	return report, err
}

// UnfinishedErasures implements trace.Eraser.
func (s *Store) UnfinishedErasures(ctx context.Context, limit int) (all []trace.Subject, err error) {
	err = s.runFor(ctx, "UnfinishedErasures", "", func() error {
		all = nil
		for subject, e := range s.erasures {
			if e.Ended.IsZero() && !e.next.After(s.clock()) && len(all) < limit {
				e.next = s.clock().Add(erasureTimeout)
				all = append(all, subject)
			}
		}
		return nil
	})
	return all, err
}
