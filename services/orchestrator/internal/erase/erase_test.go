package erase

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tenant = "default"

func sessionRef(id string) session.Ref { return session.Ref{Tenant: tenant, Session: id} }

// tiers holds both stores and injects faults. All calls fail after the first callsLeft calls (a negative number
// disables this).
type tiers struct {
	memory.Store
	trace.Eraser
	redis          *miniredis.Miniredis
	mu             sync.Mutex
	callsLeft      int
	failingSession string // the session whose traces cannot be erased
}

func newTiers(t *testing.T) *tiers {
	t.Helper()
	redis := miniredis.RunT(t)
	traces, err := redistrace.New(redisconn.Config{URL: "redis://" + redis.Addr()}, time.Hour)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, traces.Close()) })
	return &tiers{Store: inmem.New(inmem.Config{}), Eraser: traces, redis: redis, callsLeft: -1}
}

func (s *tiers) nextCallError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callsLeft == 0 {
		return failure.New(failure.SystemNetwork, "test", "the orchestrator was killed")
	}
	s.callsLeft--
	return nil
}

func (s *tiers) DeleteSession(ctx context.Context, ref session.Ref) (memory.ErasureReport, error) {
	if err := s.nextCallError(); err != nil {
		return memory.ErasureReport{}, err
	}
	return s.Store.DeleteSession(ctx, ref)
}

func (s *tiers) EraseUser(ctx context.Context, tenant, user string) (memory.UserErasure, error) {
	if err := s.nextCallError(); err != nil {
		return memory.UserErasure{}, err
	}
	return s.Store.EraseUser(ctx, tenant, user)
}

func (s *tiers) EraseTraces(ctx context.Context, ref session.Ref) error {
	if ref.Session == s.failingSession {
		return failure.New(failure.SystemNetwork, "test", "a part of the store is away")
	}
	if err := s.nextCallError(); err != nil {
		return err
	}
	return s.Eraser.EraseTraces(ctx, ref)
}

func (s *tiers) AddRemoved(ctx context.Context, subject trace.Subject, of string, counts map[string]int64) error {
	if err := s.nextCallError(); err != nil {
		return err
	}
	return s.Eraser.AddRemoved(ctx, subject, of, counts)
}

func (s *tiers) EndErasure(ctx context.Context, subject trace.Subject) (memory.ErasureReport, error) {
	if err := s.nextCallError(); err != nil {
		return memory.ErasureReport{}, err
	}
	return s.Eraser.EndErasure(ctx, subject)
}

func (s *tiers) eraser() *Eraser { return New(Config{Memory: s, Traces: s, Log: zap.NewNop()}) }

// traceStore returns the store of the traces.
func (s *tiers) traceStore() *redistrace.Store { return s.Eraser.(*redistrace.Store) } //nolint:forcetypeassert // the constructor sets it

// beginTurn begins a turn in both stores and returns its lease.
func (s *tiers) beginTurn(t *testing.T, id, user string, n int) memory.Lease {
	t.Helper()
	h, err := s.beginChildTurn(t, id, user, n, "")
	require.NoError(t, err)
	return h
}

// beginChildTurn begins a turn that an agent of another turn requested.
func (s *tiers) beginChildTurn(t *testing.T, id, user string, n int, above string) (memory.Lease, error) {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), memory.Begin{
		Ref: sessionRef(id), User: user, TurnID: "t1", TraceID: fmt.Sprintf("%032x",
			n), Fingerprint: "f", Message: conversation.User("MARKED"), LeaseTTL: time.Minute, Window: 1,
	})
	if err != nil {
		return memory.Lease{}, err
	}
	record := &troupev1.Trace{TraceId: fmt.Sprintf("%032x", n), SessionId: id, TurnId: "t1", Turn: 1, Owner: "one", Text: "MARKED"}
	events := []*troupev1.Event{{Sequence: 1, Agent: "MARKED"}}
	_, _, err = s.traceStore().Claim(t.Context(), trace.Claim{Tenant: tenant, Record: record, Events: events, Turn: trace.TurnInfo{
		User: user, TurnEpoch: 1,
		Parent: above,
	}})
	return memory.Lease{Ref: sessionRef(id), TurnID: "t1", Epoch: begun.Turn.Epoch}, err
}

func traceRef(n int) trace.Ref { return trace.Ref{Tenant: tenant, Trace: fmt.Sprintf("%032x", n)} }

func (s *tiers) requireErased(t *testing.T) {
	t.Helper()
	require.NotContains(t, s.redis.Dump(), "MARKED")
	left, err := s.UnfinishedErasures(t.Context(), 9)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestEraser_ErasesASessionInBothTiers(t *testing.T) {
	s := newTiers(t)
	h := s.beginTurn(t, "s1", "alice", 1)
	s.beginTurn(t, "s2", "alice", 2)
	first, err := s.eraser().EraseSession(t.Context(), h.Ref, "admin ann")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{memory.KindMessages: 1, memory.KindTurns: 1, trace.KindTraces: 1, trace.KindEvents: 1}, first.Removed)
	require.Equal(t, "admin ann", first.RequestedBy)
	var remains []string
	for _, r := range first.Remainders {
		remains = append(remains, r.What+": "+r.Why)
	}
	require.Contains(t, strings.Join(remains, "\n"), "questions and answers in logs at level debug")
	require.Contains(t, strings.Join(remains, "\n"), "folders evals and logs of --agent-log, which troupe dev has in .troupe")
	require.NotContains(t, strings.Join(remains, "\n"), "nothing that was said")
	require.True(t, failure.Is(s.RenewTurn(t.Context(), h, time.Minute), failure.SessionDeleted))
	again, err := s.eraser().EraseSession(t.Context(), h.Ref, "admin bob")
	require.NoError(t, err)
	require.Equal(t, first, again)
	_, err = s.traceStore().Get(t.Context(), trace.Ref{Tenant: tenant, Trace: fmt.Sprintf("%032x", 2)})
	require.NoError(t, err, "another session's")

	_, err = s.eraser().EraseSession(t.Context(), sessionRef("nobody"), "admin ann")
	require.True(t, failure.Is(err, failure.NotFound))
}

// An erasure can be interrupted at any call. Another orchestrator then completes it with the same receipt.
func TestEraser_AnotherOrchestratorCompletesAnErasure(t *testing.T) {
	for what, erase := range map[string]func(e *Eraser, ctx context.Context) (memory.ErasureReport, error){
		"session": func(e *Eraser, ctx context.Context) (memory.ErasureReport, error) {
			return e.EraseSession(ctx, sessionRef("s1"), "admin ann")
		},
		"user": func(e *Eraser, ctx context.Context) (memory.ErasureReport, error) {
			return e.EraseUser(ctx, tenant, "alice", "admin ann")
		},
	} {
		t.Run(what, func(t *testing.T) {
			for steps, done := 0, false; !done; steps++ {
				s := newTiers(t)
				s.beginTurn(t, "s1", "alice", 1)
				s.beginTurn(t, "s2", "bob", 2)
				_, err := s.eraser().EraseSession(t.Context(), sessionRef("s2"), "")
				require.NoError(t, err)
				s.callsLeft = steps
				first, err := erase(s.eraser(), t.Context())
				done = err == nil
				s.callsLeft = -1
				if !done {
					s.redis.SetTime(time.Now().Add(time.Minute))
					require.NoError(t, s.eraser().Resume(t.Context()))
				}
				s.requireErased(t)
				if what == "session" {
					again, err := erase(s.eraser(), t.Context())
					require.NoError(t, err)
					require.Equal(t, map[string]int64{memory.KindMessages: 1, memory.KindTurns: 1, trace.KindTraces: 1, trace.KindEvents: 1}, again.Removed)
					require.Equal(t, "admin ann", again.RequestedBy)
					require.True(t, !done || isEqual(first, again))
				}
				found, _, err := s.ListSessions(t.Context(), memory.SessionFilter{Tenant: tenant, User: "alice", Limit: 9})
				require.NoError(t, err)
				require.Empty(t, found, "cut after %d steps", steps)
				require.Less(t, steps, 20)
			}
		})
	}
}

func isEqual(a, b memory.ErasureReport) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// A user is erased completely, even with more sessions than one page holds.
func TestEraser_ErasesAUser(t *testing.T) {
	s := newTiers(t)
	const sessions = memory.MaxPage + 10
	for n := range sessions {
		s.beginTurn(t, fmt.Sprintf("s%d", n), "alice", n+1)
	}
	e, err := s.eraser().EraseUser(t.Context(), tenant, "alice", "client alice")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{
		memory.KindSessions: sessions, memory.KindMessages: sessions, memory.KindTurns: sessions, trace.KindTraces: sessions, trace.KindEvents: sessions,
	}, e.Removed)
	require.Equal(t, "alice", e.User)
	s.requireErased(t)
	s.beginTurn(t, "new", "alice", 1000)
}

// A session that expired in the memory service still has traces, and erasing the user removes them.
func TestEraser_ErasesTracesOfSessionsThatHadExpired(t *testing.T) {
	s := newTiers(t)
	s.beginTurn(t, "s1", "alice", 1)
	s.beginTurn(t, "s2", "bob", 2)
	_, err := s.Store.DeleteSession(t.Context(), sessionRef("s1"))
	require.NoError(t, err)
	e, err := s.eraser().EraseUser(t.Context(), tenant, "alice", "client alice")
	require.NoError(t, err)
	require.Equal(t, int64(1), e.Removed[trace.KindTraces])
	_, err = s.traceStore().Get(t.Context(), traceRef(1))
	require.True(t, failure.Is(err, failure.NotFound))
	_, err = s.traceStore().Get(t.Context(), traceRef(2))
	require.NoError(t, err, "another user's")
	_, err = s.eraser().EraseUser(t.Context(), tenant, "bob", "client bob")
	require.NoError(t, err)
	s.requireErased(t)
}

// Child sessions contain content of the session that they work for, so they are erased as well.
func TestEraser_ErasesTheSessionsOfRemoteAgents(t *testing.T) {
	for what, cut := range map[string]int{"at once": -1, "by another orchestrator": 4} {
		t.Run(what, func(t *testing.T) {
			s := newTiers(t)
			below := turnctx.ChildSessionPrefix("s1") + "a"
			deeper := turnctx.ChildSessionPrefix(below) + "b"
			other := turnctx.ChildSessionPrefix("s2") + "c"
			s.beginTurn(t, "s1", "alice", 1)
			for n, asked := range []struct {
				session string
				above   int
			}{{below, 1}, {deeper, 2}, {"s2", 1}, {other, 1}} { // the last two are not children of s1
				_, err := s.beginChildTurn(t, asked.session, "alice", n+2, traceRef(asked.above).Trace)
				require.NoError(t, err)
			}
			s.callsLeft = cut
			e, err := s.eraser().EraseSession(t.Context(), sessionRef("s1"), "admin ann")
			require.Equal(t, cut > 0, err != nil, "%v", err)
			s.callsLeft = -1
			if err != nil {
				s.redis.SetTime(time.Now().Add(time.Minute))
				require.NoError(t, s.eraser().Resume(t.Context()))
				e, err = s.eraser().EraseSession(t.Context(), sessionRef("s1"), "admin ann")
				require.NoError(t, err)
			}
			require.Equal(t, map[string]int64{
				memory.KindSessions: 2, memory.KindMessages: 3, memory.KindTurns: 3, trace.KindTraces: 3, trace.KindEvents: 3,
			}, e.Removed)
			left, _, err := s.ListSessions(t.Context(), memory.SessionFilter{Tenant: tenant, User: "alice", Limit: 9})
			require.NoError(t, err)
			require.Len(t, left, 2)
			for n, gone := range []bool{true, true, true, false, false} {
				_, err := s.traceStore().Get(t.Context(), traceRef(n+1))
				require.Equal(t, gone, failure.Is(err, failure.NotFound), n)
			}
			u, err := s.eraser().EraseUser(t.Context(), tenant, "alice", "admin ann")
			require.NoError(t, err)
			require.Equal(t, int64(2), u.Removed[trace.KindTraces])
			s.requireErased(t)
		})
	}
}

// A child turn that begins while its parent session is erased leaves no data behind, at whatever point of the
// erasure it begins.
func TestEraser_ErasesChildTurnsThatBeginDuringAnErasure(t *testing.T) {
	below := turnctx.ChildSessionPrefix("s1") + "a"
	for what, erase := range map[string]func(*testing.T, *tiers) error{
		"the session": func(t *testing.T, s *tiers) error {
			_, err := s.eraser().EraseSession(t.Context(), sessionRef("s1"), "admin ann")
			return err
		},
		"the user": func(t *testing.T, s *tiers) error {
			_, err := s.eraser().EraseUser(t.Context(), tenant, "alice", "admin ann")
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			rejected, ended := 0, false
			for cut := 1; !ended; cut++ { // the erasure pauses after each of its steps
				s := newTiers(t)
				s.beginTurn(t, "s1", "alice", 1)
				s.callsLeft = cut
				ended = erase(t, s) == nil
				s.callsLeft = -1
				_, err := s.beginChildTurn(t, below, "alice", 2, traceRef(1).Trace)
				if err != nil {
					require.True(t, failure.Is(err, failure.SessionDeleted), "%v", err)
					rejected++
				}
				s.redis.SetTime(time.Now().Add(time.Minute))
				for range 2 {
					require.NoError(t, s.eraser().Resume(t.Context()))
				}
				_, err = s.GetSession(t.Context(), sessionRef(below))
				require.True(t, failure.Is(err, failure.NotFound, failure.SessionDeleted), "%s, %d steps: %v", what, cut, err)
				s.requireErased(t)
			}
			require.Positive(t, rejected)
		})
	}
}

// An erasure that fails does not block other erasures.
func TestEraser_FailedErasureDoesNotBlockOthers(t *testing.T) {
	s := newTiers(t)
	for n, id := range []string{"s1", "s2", "s3"} {
		s.beginTurn(t, id, "", n+1)
		_, err := s.BeginErasure(t.Context(), trace.Subject{Tenant: tenant, Session: id}, "admin ann", false)
		require.NoError(t, err)
	}
	s.redis.SetTime(time.Now().Add(time.Minute))
	s.failingSession = "s2"
	require.True(t, failure.Is(s.eraser().Resume(t.Context()), failure.SystemNetwork))
	for n, gone := range []bool{true, false, true} {
		left, err := s.traceStore().Events(t.Context(), traceRef(n+1), 0, 9)
		require.NoError(t, err)
		require.Equal(t, gone, len(left) == 0, n)
	}
}

// The receipt of an erasure is not lost if the orchestrator dies right after the erasure ended.
func TestEraser_KeepsTheReceipt(t *testing.T) {
	s := newTiers(t)
	s.beginTurn(t, "s1", "alice", 1)
	first, err := s.eraser().EraseUser(t.Context(), tenant, "alice", "admin ann")
	require.NoError(t, err)
	user := trace.Subject{Tenant: tenant, User: "alice"}
	_, err = s.BeginErasure(t.Context(), user, "", false) // and the erasure is listed again
	require.NoError(t, err)
	s.redis.SetTime(time.Now().Add(time.Minute))
	require.NoError(t, s.eraser().Resume(t.Context()))
	kept, err := s.Eraser.EndErasure(t.Context(), user)
	require.NoError(t, err)
	require.Equal(t, "admin ann", kept.RequestedBy)
	require.Equal(t, first.Removed, kept.Removed)
	require.Equal(t, first.Ended, kept.Ended)
}
