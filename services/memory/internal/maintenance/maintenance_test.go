package maintenance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/maintenance"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// maintainedStore is a store that a Maintainer maintains until the test ends.
type maintainedStore struct {
	memory.Store
	logs    *observer.ObservedLogs
	metrics *sdkmetric.ManualReader
}

func startMaintainer(t *testing.T, cfg maintenance.Config) *maintainedStore {
	t.Helper()
	store, err := redisstore.New(redisstore.Config{URL: "redis://" + miniredis.RunT(t).Addr()})
	require.NoError(t, err)
	core, logs := observer.New(zap.DebugLevel)
	reader := sdkmetric.NewManualReader()
	cfg.Store, cfg.Log, cfg.Metrics = store, zap.New(core), sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	maintainer, err := maintenance.New(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- maintainer.Run(ctx, func() {}) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		require.NoError(t, store.Close())
	})
	return &maintainedStore{Store: maintainer.ObservedStore(), logs: logs, metrics: reader}
}

// counterValue returns the value of a counter, summed over all attributes.
func (s *maintainedStore) counterValue(t *testing.T, name string) (sum int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, s.metrics.Collect(t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if values, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range values.DataPoints {
					sum += p.Value
				}
			}
		}
	}
	return sum
}

// runTurn runs a turn with the given number of messages, including the user's, and the given outcome.
func runTurn(t *testing.T, s memory.Store, ref session.Ref, id string, messages int, outcome session.Outcome) {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, TurnID: id, TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f",
		Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 1,
	})
	require.NoError(t, err)
	base := begun.Turn.Sequence
	for step := 1; messages > 1; step++ {
		n := min(messages-1, 64)
		messages -= n
		said := make([]conversation.Message, n)
		for i := range said {
			said[i] = conversation.Assistant("echo", "hi")
		}
		c := memory.Commit{Ref: ref, TurnID: id, Epoch: begun.Turn.Epoch, Base: base, Messages: said, Result: execution.Result{Step: step, Agent: "echo"}}
		if messages == 1 && outcome == session.OutcomeCompleted {
			c.Outcome = outcome
		}
		base, err = s.CommitStep(t.Context(), c)
		require.NoError(t, err)
	}
	if outcome == session.OutcomeFailed {
		_, err = s.FailTurn(t.Context(), memory.Fail{Ref: ref, TurnID: id, Epoch: begun.Turn.Epoch, Outcome: outcome, Failure: failure.New(failure.NoWorker,
			"test", "nobody")})
		require.NoError(t, err)
	}
}

// eventually calls ok until it returns true. It fails the test after a time that is far longer than any normal
// wait.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			require.FailNow(t, "did not happen in time")
		case <-tick.C:
		}
	}
}

func messages(t *testing.T, s memory.Store, ref session.Ref) int64 {
	t.Helper()
	found, err := s.GetSession(t.Context(), ref)
	require.NoError(t, err)
	return found.Size.Messages
}

// Req: LP-21, LP-26
func TestMaintainer_CompactsLongSessionsAfterTheirTurns(t *testing.T) {
	for _, outcome := range []session.Outcome{session.OutcomeCompleted, session.OutcomeFailed} {
		t.Run(string(outcome), func(t *testing.T) {
			k := startMaintainer(t, maintenance.Config{CompactAbove: 10})
			short, long := session.Ref{Tenant: "default", Session: "short"}, session.Ref{Tenant: "default", Session: "long"}
			runTurn(t, k, short, "t1", 10, outcome)
			runTurn(t, k, long, "t1", 11, outcome)
			eventually(t, func() bool { return messages(t, k, long) == 5 })
			history, err := k.LoadHistory(t.Context(), long, 0, 10)
			require.NoError(t, err)
			require.Equal(t, conversation.RoleSummary, history[0].Role)
			require.EqualValues(t, 10, messages(t, k, short))
			eventually(t, func() bool { return k.counterValue(t, "troupe.sessions.compacted") == 1 })
		})
	}
}

func TestMaintainer_LeavesTheConfiguredNumberOfMessages(t *testing.T) {
	k := startMaintainer(t, maintenance.Config{CompactAbove: 10, CompactKeep: 2})
	ref := session.Ref{Tenant: "default", Session: "s1"}
	runTurn(t, k, ref, "t1", 12, session.OutcomeCompleted)
	eventually(t, func() bool { return messages(t, k, ref) == 2 })
	for i := range 3 { // the session grows and is compacted again
		runTurn(t, k, ref, fmt.Sprintf("again%d", i), 12, session.OutcomeCompleted)
		eventually(t, func() bool { return messages(t, k, ref) == 2 })
	}
}

// Req: LP-21
func TestMaintainer_WarnsOnceAboutANearlyFullSession(t *testing.T) {
	k := startMaintainer(t, maintenance.Config{})
	ref := session.Ref{Tenant: "default", Session: "s1"}
	warnings := func() int { return k.logs.FilterMessageSnippet("nearly full").Len() }
	runTurn(t, k, ref, "t1", session.MaxMessages*90/100-2, session.OutcomeCompleted)
	runTurn(t, k, ref, "t2", 2, session.OutcomeCompleted)
	eventually(t, func() bool { return warnings() == 1 })
	runTurn(t, k, ref, "t3", 2, session.OutcomeCompleted)
	other := session.Ref{Tenant: "default", Session: "s2"} // checked after the third turn
	runTurn(t, k, other, "t1", session.MaxMessages*90/100, session.OutcomeCompleted)
	eventually(t, func() bool { return warnings() == 2 })
	require.Equal(t, "s2", k.logs.FilterMessageSnippet("nearly full").All()[1].ContextMap()["session"])
	require.EqualValues(t, session.MaxMessages*90/100+2, messages(t, k, ref))
}

// Req: RA-24
func TestMaintainer_DeletesUnusedSessions(t *testing.T) {
	k := startMaintainer(t, maintenance.Config{Retention: 100 * time.Millisecond, Interval: 10 * time.Millisecond})
	idle, open := session.Ref{Tenant: "default", Session: "idle"}, session.Ref{Tenant: "default", Session: "open"}
	runTurn(t, k, open, "t1", 2, session.OutcomeOpen)
	runTurn(t, k, idle, "t1", 2, session.OutcomeCompleted)
	eventually(t, func() bool {
		_, err := k.GetSession(t.Context(), idle)
		return failure.Is(err, failure.SessionDeleted)
	})
	eventually(t, func() bool { return k.counterValue(t, "troupe.sessions.expired") == 1 })
	_, err := k.GetSession(t.Context(), open)
	require.NoError(t, err)
}

// The maintainer deletes the unused sessions of every tenant.
func TestMaintainer_DeletesUnusedSessionsOfAllTenants(t *testing.T) {
	k := startMaintainer(t, maintenance.Config{Retention: 100 * time.Millisecond, Interval: 10 * time.Millisecond})
	for _, tenant := range []string{"acme", "umbrella"} {
		runTurn(t, k, session.Ref{Tenant: tenant, Session: "s1"}, "t1", 2, session.OutcomeCompleted)
	}
	for _, tenant := range []string{"acme", "umbrella"} {
		eventually(t, func() bool {
			_, err := k.GetSession(t.Context(), session.Ref{Tenant: tenant, Session: "s1"})
			return failure.Is(err, failure.SessionDeleted)
		})
	}
	eventually(t, func() bool { return k.counterValue(t, "troupe.sessions.expired") == 2 })
}

// The maintainer continues after an outage of Redis. It logs the outage once per search for unused sessions.
func TestMaintainer_SurvivesAStoreOutage(t *testing.T) {
	server := miniredis.RunT(t)
	store, err := redisstore.New(redisstore.Config{URL: "redis://" + server.Addr()})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	server.Close()
	core, logs := observer.New(zap.DebugLevel)
	maintainer, err := maintenance.New(maintenance.Config{
		Store: store, Retention: time.Hour, Interval: 5 * time.Millisecond, Log: zap.New(core), Metrics: sdkmetric.NewMeterProvider(),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- maintainer.Run(ctx, func() {}) }()
	eventually(t, func() bool { return logs.FilterMessageSnippet("some unused sessions could not be deleted").Len() > 1 })
	stop()
	require.NoError(t, <-done)
}
