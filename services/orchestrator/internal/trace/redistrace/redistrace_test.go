package redistrace_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/tracetest"
	"github.com/troupe-dev/troupe/test/redistest"
)

func newStore(t *testing.T, addr string) *redistrace.Store {
	t.Helper()
	s, err := redistrace.New(redisconn.Config{URL: "redis://" + addr + "/0"}, time.Hour)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
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

// The store behaves the same on a real Redis and on the embedded one.
func TestStore(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"redis":     func(t *testing.T) string { return redistest.Start(t) },
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) { tracetest.Run(t, newStore(t, addr(t))) })
	}
}

// A trace with pending calls is kept as long as its turn, so that the turn can be continued.
func TestStore_KeepsATraceWithPendingCalls(t *testing.T) {
	redis := miniredis.RunT(t)
	s := newStore(t, redis.Addr())
	for n, result := range []*troupev1.TurnResult{{Text: "so"}, {Pending: []*troupev1.PendingCall{{Id: "1-1-2", Arguments: "{}"}}}} {
		epoch, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(n), Events: numberedEvents(1, 1)})
		require.NoError(t, err)
		require.NoError(t, s.Append(t.Context(), traceRef(n), epoch, 0, numberedEvents(2, 2), result))
	}
	all, err := s.List(t.Context(), "default", trace.Query{Limit: 10})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Empty(t, all[0].GetResult().GetPending(), "a list is short")

	redis.FastForward(memory.Retention - time.Minute)
	_, err = s.Get(t.Context(), traceRef(0))
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
	kept, err := s.Get(t.Context(), traceRef(1))
	require.NoError(t, err)
	require.Equal(t, "1-1-2", kept.GetResult().GetPending()[0].GetId())
	redis.FastForward(2 * time.Minute)
	_, err = s.Get(t.Context(), traceRef(1))
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
}

func TestStore_OutageFailsWithSystemNetwork(t *testing.T) {
	s := newStore(t, "127.0.0.1:1")
	_, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(1), Events: nil})
	require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
	require.NotContains(t, grpcfailure.ToProto(err).GetMessage(), "127.0.0.1", "addresses are for the log")
}

func TestNew_ErrorDoesNotContainTheURL(t *testing.T) {
	_, err := redistrace.New(redisconn.Config{URL: "http://user:hunter2@host"}, time.Hour)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}
