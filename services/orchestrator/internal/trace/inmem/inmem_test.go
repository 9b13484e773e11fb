package inmem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/inmem"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/tracetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore_Suite(t *testing.T) { tracetest.Run(t, inmem.New(nil)) }

// An erased session rejects late writers, and its receipt counts what was removed.
func TestStore_ErasesASession(t *testing.T) {
	s := inmem.New(nil)
	claim := trace.Claim{
		Tenant: "default", Record: &troupev1.Trace{TraceId: "1", SessionId: "s"},
		Turn: trace.TurnInfo{User: "u"}, Events: []*troupev1.Event{{Sequence: 1}},
	}
	epoch, _, err := s.Claim(t.Context(), claim)
	require.NoError(t, err)
	found, err := s.SessionsOfUser(t.Context(), "default", "u", time.Now(), 9)
	require.NoError(t, err)
	require.Equal(t, []string{"s"}, found)

	subject := trace.Subject{Tenant: "default", Session: "s"}
	for range 2 { // a repeated erasure has the same receipt
		_, err = s.BeginErasure(t.Context(), subject, "ann", false)
		require.NoError(t, err)
		require.NoError(t, s.EraseTraces(t.Context(), subject.Ref()))
		report, err := s.EndErasure(t.Context(), subject)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{trace.KindTraces: 1, trace.KindEvents: 1}, report.Removed)
	}
	err = s.Append(t.Context(), claim.Ref(), epoch, 0, []*troupev1.Event{{Sequence: 2}}, nil)
	require.True(t, failure.Is(err, failure.SessionDeleted), "%v", err)
	_, _, err = s.Claim(t.Context(), claim)
	require.True(t, failure.Is(err, failure.SessionDeleted), "%v", err)
	_, err = s.Get(t.Context(), claim.Ref())
	require.True(t, failure.Is(err, failure.NotFound), "%v", err)
}

// An unfinished erasure is handed to one caller at a time, and a user who returns can be erased again.
func TestStore_ErasesAUserAgain(t *testing.T) {
	now := time.Now()
	s := inmem.New(func() time.Time { return now })
	user := trace.Subject{Tenant: "default", User: "alice"}
	for range 2 {
		_, err := s.BeginErasure(t.Context(), user, "alice", true)
		require.NoError(t, err)
		now = now.Add(time.Minute)
		for _, want := range [][]trace.Subject{{user}, nil} {
			unfinished, err := s.UnfinishedErasures(t.Context(), 9)
			require.NoError(t, err)
			require.Equal(t, want, unfinished)
		}
		for range 2 {
			require.NoError(t, s.AddRemoved(t.Context(), user, "s1", map[string]int64{memory.KindMessages: 2}))
		}
		report, err := s.EndErasure(t.Context(), user)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{memory.KindMessages: 2}, report.Removed)
	}
}
