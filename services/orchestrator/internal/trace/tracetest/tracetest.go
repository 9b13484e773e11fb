// Package tracetest is the test suite that every implementation of trace.Store passes.
package tracetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// Run tests an empty store. Its parts depend on each other.
func Run(t *testing.T, s trace.Store) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, trace.Store)
	}{
		{"followers are counted, also before the trace exists", countsFollowers},
		{"a trace from claim to end", keepsATrace},
		{"a later owner fences the one before", fencesEarlierOwners},
		{"events have no gap", rejectsGaps},
		{"lists are newest first", listsNewestFirst},
		{"who ends a trace without labels leaves those that it has", keepsLabels},
		{"each orphan is claimed by one owner", offersOrphansOnce},
		{"unknown traces", reportsUnknownTraces},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s) })
	}
}

func countsFollowers(t *testing.T, s trace.Store) {
	t.Helper()
	for _, c := range []struct{ add, sum int }{{1, 1}, {1, 2}, {-1, 1}, {0, 1}, {-1, 0}} {
		sum, err := s.AddFollowers(t.Context(), traceRef(99), c.add)
		require.NoError(t, err)
		require.Equal(t, c.sum, sum)
	}
}

func keepsATrace(t *testing.T, s trace.Store) {
	t.Helper()
	epoch, last, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(1), Events: numberedEvents(1, 2)})
	require.NoError(t, err)
	require.Equal(t, int64(1), epoch)
	require.Equal(t, uint64(2), last)
	require.NoError(t, s.Append(t.Context(), traceRef(1), epoch, 0, numberedEvents(3, 300), nil))
	require.NoError(t, s.Append(t.Context(), traceRef(1), epoch, 0, numberedEvents(3, 300), nil), "a repeat is fine")
	result := &troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, Text: "so"}
	require.NoError(t, s.Append(t.Context(), traceRef(1), epoch, 0, numberedEvents(301, 301), result))

	got, err := s.Get(t.Context(), traceRef(1))
	require.NoError(t, err)
	want := proto.CloneOf(newRecord(1))
	want.State, want.LastSequence, want.OwnerEpoch, want.Result = troupev1.TraceState_TRACE_STATE_ENDED, 301, 1, result
	want.RootTraceId = traceRef(1).Trace // a trace without a root is the root of its run
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))

	page, err := s.Events(t.Context(), traceRef(1), 290, 5)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(numberedEvents(291, 295), page, protocmp.Transform()))

	_, _, err = s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(1), Events: nil})
	require.True(t, failure.Is(err, failure.TurnNotOpen), "%v", err)
}

func fencesEarlierOwners(t *testing.T, s trace.Store) {
	t.Helper()
	first, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(2), Events: numberedEvents(1, 1)})
	require.NoError(t, err)
	taken := newRecord(2)
	taken.Owner = "two"
	second, last, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: taken, Events: nil})
	require.NoError(t, err)
	require.Equal(t, first+1, second)
	require.Equal(t, uint64(1), last)
	err = s.Append(t.Context(), traceRef(2), first, 0, numberedEvents(2, 2), nil)
	require.True(t, failure.Is(err, failure.Fenced), "%v", err)
	require.NoError(t, s.Append(t.Context(), traceRef(2), second, 0, numberedEvents(2, 2), nil))
	got, err := s.Get(t.Context(), traceRef(2))
	require.NoError(t, err)
	require.Equal(t, "two", got.GetOwner())
	require.Equal(t, troupev1.TraceState_TRACE_STATE_RUNNING, got.GetState())
}

func rejectsGaps(t *testing.T, s trace.Store) {
	t.Helper()
	epoch, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(3), Events: numberedEvents(1, 1)})
	require.NoError(t, err)
	require.Error(t, s.Append(t.Context(), traceRef(3), epoch, 0, numberedEvents(5, 6), nil))
	all, err := s.Events(t.Context(), traceRef(3), 0, 100)
	require.NoError(t, err)
	require.Len(t, all, 1)
}

func listsNewestFirst(t *testing.T, s trace.Store) {
	t.Helper()
	all, err := s.List(t.Context(), "default", trace.Query{Limit: 2})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, traceRef(3).Trace, all[0].GetTraceId())
	require.Equal(t, traceRef(2).Trace, all[1].GetTraceId())
}

func keepsLabels(t *testing.T, s trace.Store) {
	t.Helper()
	for _, labels := range []string{`{"profile":"fast"}`, ""} {
		_, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(4), Turn: trace.TurnInfo{User: "u", Labels: labels}})
		require.NoError(t, err)
	}
	running, err := s.Load(t.Context(), traceRef(4))
	require.NoError(t, err)
	require.Equal(t, `{"profile":"fast"}`, running.Turn.Labels)
}

func offersOrphansOnce(t *testing.T, s trace.Store) {
	t.Helper()
	info := trace.TurnInfo{User: "u", Fingerprint: "f", TurnEpoch: 5, Timeout: time.Minute, HasCredentials: true, Labels: `{"profile":"fast"}`}
	for n := range 3 {
		_, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(10 + n), Turn: info, Events: numberedEvents(1, 1)})
		require.NoError(t, err)
	}
	heard, err := s.Heartbeat(t.Context(), trace.Heartbeat{Owned: []trace.Ref{traceRef(10)}, LeaseTime: time.Minute, MaxTakeovers: 9})
	require.NoError(t, err)
	require.Empty(t, heard.TakenOver, "a claim vouches")
	require.NoError(t, s.ReleaseLease(t.Context(), traceRef(11)))
	require.NoError(t, s.ReleaseLease(t.Context(), traceRef(12)))
	heard, err = s.Heartbeat(t.Context(), trace.Heartbeat{
		Ended: []trace.Ref{traceRef(12), traceRef(99)}, LeaseTime: time.Minute, MaxTakeovers: 9,
		Cursor: heard.Cursor,
	})
	require.NoError(t, err)
	require.Equal(t, []trace.Ref{traceRef(11)}, heard.TakenOver)
	heard, err = s.Heartbeat(t.Context(), trace.Heartbeat{LeaseTime: time.Minute, MaxTakeovers: 9, Cursor: heard.Cursor})
	require.NoError(t, err)
	require.Empty(t, heard.TakenOver)

	require.NoError(t, s.RequestStop(t.Context(), trace.StopRequest{Ref: traceRef(11), Reason: "why not"}))
	heard, err = s.Heartbeat(t.Context(), trace.Heartbeat{LeaseTime: time.Minute, Cursor: heard.Cursor})
	require.NoError(t, err)
	require.Equal(t, []trace.StopRequest{{Ref: traceRef(11), Reason: "why not"}}, heard.Stops)
	heard, err = s.Heartbeat(t.Context(), trace.Heartbeat{LeaseTime: time.Minute, Cursor: heard.Cursor})
	require.NoError(t, err)
	require.Empty(t, heard.Stops)

	running, err := s.Load(t.Context(), traceRef(11))
	require.NoError(t, err)
	require.Equal(t, info, running.Turn)
	require.InDelta(t, time.Minute, running.TimeLeft, float64(10*time.Second))
	require.True(t, running.StopRequested)
	require.Equal(t, "why not", running.StopReason)

	older := info
	older.TurnEpoch--
	_, _, err = s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(11), Turn: older})
	require.True(t, failure.Is(err, failure.Fenced), "the trace goes with the turn: %v", err)

	owner, end, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(11), Turn: info})
	require.NoError(t, err)
	for n, epoch := range []int64{info.TurnEpoch + 1, 0} {
		at := end + 1 + uint64(n)
		require.NoError(t, s.Append(t.Context(), traceRef(11), owner, epoch, numberedEvents(at, at), nil))
		running, err = s.Load(t.Context(), traceRef(11))
		require.NoError(t, err)
		require.Equal(t, info.TurnEpoch+1, running.Turn.TurnEpoch)
	}
	_, _, err = s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(11), Turn: info})
	require.True(t, failure.Is(err, failure.Fenced), "its owner took the turn back: %v", err)
}

func reportsUnknownTraces(t *testing.T, s trace.Store) {
	t.Helper()
	_, err := s.Load(t.Context(), traceRef(9))
	require.True(t, failure.Is(err, failure.NotFound))
	_, err = s.Get(t.Context(), traceRef(9))
	require.True(t, failure.Is(err, failure.NotFound))
	require.True(t, failure.Is(s.Append(t.Context(), traceRef(9), 1, 0, numberedEvents(1, 1), nil), failure.NotFound))
}

func newRecord(n int) *troupev1.Trace {
	return &troupev1.Trace{
		TraceId: fmt.Sprintf("%032x", n), SessionId: "s", TurnId: "t", Turn: 1, Owner: "one", Text: "what?",
		Started: timestamppb.New(time.Unix(int64(n), 0)),
	}
}

func traceRef(n int) trace.Ref { return trace.Ref{Tenant: "default", Trace: newRecord(n).GetTraceId()} }

func numberedEvents(first, last uint64) (all []*troupev1.Event) {
	for s := first; s <= last; s++ {
		all = append(all, &troupev1.Event{Sequence: s, Agent: fmt.Sprint(s)})
	}
	return all
}
