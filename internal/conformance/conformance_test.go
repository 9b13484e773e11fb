package conformance

import (
	"context"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_ReferenceInstancePassesEveryCheck(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	report, err := Run(t.Context(), Config{Address: serveHost(t, ""), Progress: func(Result) { told.Add(1) }})
	require.NoError(t, err)
	if report.FailedCount() > 0 {
		require.NoError(t, report.WriteTable(t.Output(), false))
	}
	require.Zero(t, report.FailedCount())
	require.Len(t, report.Results, len(Checks()))
	require.EqualValues(t, len(Checks()), told.Load())
}

func TestRun_WithoutAWorkerReturnsAHelpfulError(t *testing.T) {
	address, stop, err := serveGRPC(func(*grpc.Server) {})
	require.NoError(t, err)
	_, err = Run(t.Context(), Config{Address: address})
	require.EqualError(t, err, "the server at "+address+" is not under test; start the worker with --conformance")
	stop()
	_, err = Run(t.Context(), Config{Address: address})
	require.EqualError(t, err, "cannot reach a worker at "+address+"; start one with --conformance")
}

func TestRun_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	report, err := Run(ctx, Config{Address: serveHost(t, ""), Progress: func(Result) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, report.FailedCount())
}

func TestChecks_HaveValidUniqueIDs(t *testing.T) {
	id, seen := regexp.MustCompile(`^[a-z]+/[a-z0-9-]+$`), map[string]bool{}
	require.Len(t, Checks(), 151, "the number in the docs and in the Node worker")
	for _, c := range Checks() {
		require.Regexp(t, id, c.ID)
		require.False(t, seen[c.ID], "%s twice", c.ID)
		require.NotEmpty(t, c.Requirement, c.ID)
		require.True(t, strings.HasSuffix(c.Title, "."), c.Title)
		seen[c.ID] = true
	}
}

func TestSelectChecks_MatchesIDsAreasAndPatterns(t *testing.T) {
	count := func(patterns ...string) int {
		checks, err := SelectChecks(patterns...)
		require.NoError(t, err)
		return len(checks)
	}
	require.Equal(t, len(Checks()), count())
	require.Equal(t, 42, count("verbs"))
	require.Equal(t, 7, count("verbs/pause-*"))
	require.Equal(t, 1, count("startup/retries"))
	require.Equal(t, 7, count("verbs/pause-in-busy", "verbs/pause-*"))
	for _, bad := range []string{"verb", "", "verbs/[a"} {
		_, err := SelectChecks("startup", bad)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%q: %v", bad, err)
	}
}

func TestRepeatFailed_KeepsTheFirstReason(t *testing.T) {
	results := []Result{{Check: Check{ID: "a/passes"}}, {Check: Check{ID: "a/late"}, Reason: "late"}, {Check: Check{ID: "a/wrong"}, Reason: "wrong"}}
	var ran []string
	for again := range 2 {
		repeatFailed(results, func(c Check) Result {
			ran = append(ran, c.ID)
			r := Result{Check: c}
			if c.ID == "a/wrong" {
				r.Reason = "wrong, " + []string{"again", "and again"}[again]
			}
			return r
		})
	}
	require.Equal(t, []string{"a/late", "a/wrong", "a/wrong"}, ran)
	require.Equal(t, []Result{
		{Check: Check{ID: "a/passes"}},
		{Check: Check{ID: "a/late"}, FirstReason: "late"},
		{Check: Check{ID: "a/wrong"}, Reason: "wrong, and again", FirstReason: "wrong"},
	}, results)
}
