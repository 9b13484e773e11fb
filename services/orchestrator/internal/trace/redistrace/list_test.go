package redistrace_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
)

var quarantinedResult = &troupev1.TurnResult{
	Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Failure: grpcfailure.ToProto(failure.New(failure.AttemptsExhausted, "turn", "it took down three")),
}

// storeTrace stores a trace of a run, and ends it if a result is given.
func storeTrace(t *testing.T, s *redistrace.Store, n, root int, result *troupev1.TurnResult) {
	t.Helper()
	r := newRecord(n)
	r.RootTraceId = traceRef(root).Trace
	epoch, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: r, Events: numberedEvents(1, 1)})
	require.NoError(t, err)
	if result != nil {
		last := []*troupev1.Event{{Sequence: 2, Time: timestamppb.New(time.Unix(int64(100-n), 0))}}
		require.NoError(t, s.Append(t.Context(), traceRef(n), epoch, 0, last, result))
	}
}

func listTraceIDs(t *testing.T, s *redistrace.Store, q trace.Query) (ids []int64) {
	t.Helper()
	all, err := s.List(t.Context(), "default", q)
	require.NoError(t, err)
	for _, r := range all {
		ids = append(ids, r.GetStarted().GetSeconds())
	}
	return ids
}

// The traces of a run are found by its root trace, and quarantined traces by their result.
func TestStore_ListsARunAndTheQuarantine(t *testing.T) {
	redis := miniredis.RunT(t)
	s := newStore(t, redis.Addr())
	done := &troupev1.TurnResult{Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED}
	storeTrace(t, s, 1, 1, done)
	storeTrace(t, s, 2, 1, nil)
	storeTrace(t, s, 3, 3, quarantinedResult)
	storeTrace(t, s, 4, 1, quarantinedResult)
	storeTrace(t, s, 5, 1, done)
	for name, c := range map[string]struct {
		q    trace.Query
		want []int64
	}{
		"all":                   {trace.Query{Limit: 9}, []int64{5, 4, 3, 2, 1}},
		"a run":                 {trace.Query{Root: traceRef(1).Trace, Limit: 9}, []int64{5, 4, 2, 1}},
		"the latest of a run":   {trace.Query{Root: traceRef(1).Trace, Limit: 3}, []int64{5, 4, 2}},
		"a run of one":          {trace.Query{Root: traceRef(3).Trace, Limit: 9}, []int64{3}},
		"one that began no run": {trace.Query{Root: traceRef(4).Trace, Limit: 9}, nil},
		"no run":                {trace.Query{Root: traceRef(9).Trace, Limit: 9}, nil},
		"the quarantine":        {trace.Query{OnlyQuarantined: true, Limit: 9}, []int64{3, 4}}, // by their ends
		"the latest of it":      {trace.Query{OnlyQuarantined: true, Limit: 1}, []int64{3}},
		"the one of a run":      {trace.Query{Root: traceRef(1).Trace, OnlyQuarantined: true, Limit: 1}, []int64{4}},
	} {
		require.Equal(t, c.want, listTraceIDs(t, s, c.q), name)
	}

	redis.FastForward(memory.Retention - time.Minute) // an operator may look only after a weekend
	require.Equal(t, []int64{3, 4}, listTraceIDs(t, s, trace.Query{OnlyQuarantined: true, Limit: 9}))
	require.Equal(t, []int64{4, 2}, listTraceIDs(t, s, trace.Query{Root: traceRef(1).Trace, Limit: 9}))
	got, err := s.Get(t.Context(), traceRef(4))
	require.NoError(t, err)
	require.True(t, got.GetQuarantined())
	redis.FastForward(2 * time.Minute)
	require.Empty(t, listTraceIDs(t, s, trace.Query{OnlyQuarantined: true, Limit: 9}))
}

// A list of the longest results fits into the 4 MiB that gRPC clients accept by default.
func TestStore_ListsTheLongestResults(t *testing.T) {
	s := newStore(t, miniredis.RunT(t).Addr())
	long := failure.New(failure.ResourceTool, "tool", strings.Repeat("m", 64<<10))
	for i := range 32 {
		long = long.With(strconv.Itoa(i), strings.Repeat("x", 64<<10))
	}
	why, much := grpcfailure.ToProto(long), strings.Repeat("t", 64<<10)
	result := &troupev1.TurnResult{
		Outcome: troupev1.TurnOutcome_TURN_OUTCOME_FAILED, Failure: why, Text: much,
		Partial: &troupev1.PartialResult{TotalSteps: 50, PartialData: []string{much}, StepResults: []*troupev1.PartialStep{
			{Failure: why},
			{Failure: why},
		}},
		Coordination: &troupev1.Coordination{LastAgent: "a", ToolHistory: []string{much}},
	}
	const some, most = 4, 200 // that a client may ask for
	for n := range some {
		storeTrace(t, s, n+1, n+1, result)
	}
	all, err := s.List(t.Context(), "default", trace.Query{Limit: some})
	require.NoError(t, err)
	require.Len(t, all, some)
	require.Less(t, proto.Size(&troupev1.ListTracesResponse{Traces: all})*most/some, 4<<20)
	require.EqualValues(t, 50, all[0].GetResult().GetPartial().GetTotalSteps())
	require.Equal(t, "a", all[0].GetResult().GetCoordination().GetLastAgent())
	whole, err := s.Get(t.Context(), traceRef(1))
	require.NoError(t, err)
	require.True(t, proto.Equal(result, whole.GetResult()))
}
