package generation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/inmem"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/generation"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/parallel"
	"github.com/troupe-dev/troupe/test/redistest"
)

func TestMain(m *testing.M) {
	parallel.SetMinimum(6)
	goleak.VerifyTestMain(m)
}

// lowestEpoch returns the lowest epoch of a generation.
func lowestEpoch(generation int64) int64 { return generation << 32 }

// guardedStore is a store whose guard runs until the test ends.
type guardedStore struct {
	*redisstore.Store
	guard   *generation.Guard
	logs    *observer.ObservedLogs
	metrics *metric.ManualReader
}

func startGuard(t *testing.T, url string, records registry.StoreRecords) *guardedStore {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	g := &guardedStore{logs: logs, metrics: metric.NewManualReader()}
	var err error
	g.guard, err = generation.New(generation.Config{
		Records: records, Name: "redis", Interval: 50 * time.Millisecond,
		Log: zap.New(core), Metrics: metric.NewMeterProvider(metric.WithReader(g.metrics)),
	})
	require.NoError(t, err)
	g.Store, err = redisstore.New(redisstore.Config{URL: url, Generation: g.guard.Generation, OnConnect: g.guard.RecordProcess})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.guard.Run(ctx, g.Store, func() {}) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		require.NoError(t, g.Close())
	})
	return g
}

// rollbacks returns the value of the rollback metric.
func (g *guardedStore) rollbacks(t *testing.T) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, g.metrics.Collect(t.Context(), &all))
	var n int64
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == "troupe.store.rollback" {
				for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
					n += point.Value
				}
			}
		}
	}
	return n
}

// beginTurn opens a turn of a new session, and retries until the store accepts it.
func (g *guardedStore) beginTurn(t *testing.T, sessionID string) session.Turn {
	t.Helper()
	var begun memory.BeginResult
	eventually(t, func(ctx context.Context) (err error) {
		begun, err = g.BeginTurn(ctx, beginRequest(sessionID))
		return err
	})
	return begun.Turn
}

func beginRequest(sessionID string) memory.Begin {
	return memory.Begin{
		Ref: session.Ref{Tenant: "default", Session: sessionID}, TurnID: "t1", TraceID: "0af7651916cd43dd8448eb211c80319c",
		Fingerprint: "f", Message: conversation.User("hello"), LeaseTTL: memory.MaxLeaseTTL, Window: 10,
	}
}

func commitAnswer(t *testing.T, s memory.Store, sessionID string, turn session.Turn) {
	t.Helper()
	_, err := s.CommitStep(t.Context(), memory.Commit{
		Ref: session.Ref{Tenant: "default", Session: sessionID}, TurnID: turn.ID, Epoch: turn.Epoch, Base: turn.Sequence,
		Messages: []conversation.Message{conversation.Assistant("echo", "hi")},
		Result:   execution.Result{Step: 1, Agent: "echo"}, Outcome: session.OutcomeCompleted,
	})
	require.NoError(t, err)
}

// eventually calls ask until it returns nil. It fails the test after a time that only a broken test reaches.
func eventually(t *testing.T, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			require.NoError(t, err, "did not happen in time")
		case <-tick.C:
		}
	}
}

func TestGuard_RejectsBeforeItsFirstCheck(t *testing.T) {
	g, err := generation.New(generation.Config{Records: inmem.NewStoreRecords(), Log: zap.NewNop(), Metrics: metric.NewMeterProvider()})
	require.NoError(t, err)
	_, err = g.Generation()
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err))
}

// A restart of Redis with the same data begins a new generation. A turn that was open before the restart can still
// be committed.
func TestGuard_RestartRaisesEpochs(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	g := startGuard(t, "redis://"+server.Addr, inmem.NewStoreRecords())
	open := g.beginTurn(t, "s1")
	require.EqualValues(t, 1, open.Epoch)
	for want := range int64(2) {
		server.Kill()
		server.Start()
		turn := g.beginTurn(t, []string{"s2", "s3"}[want])
		require.Equal(t, lowestEpoch(want+1), turn.Epoch)
	}
	commitAnswer(t, g, "s1", open)
	require.Zero(t, g.rollbacks(t))
}

// A holder that repeats BeginTurn after a lost reply gets an epoch of the new generation. Its old epoch may belong
// to another holder.
func TestGuard_RepeatedBeginGetsTheNextGeneration(t *testing.T) {
	server := redistest.StartServer(t)
	g := startGuard(t, "redis://"+server.Addr, inmem.NewStoreRecords())
	require.EqualValues(t, 1, g.beginTurn(t, "s1").Epoch)
	server.Kill()
	server.Start()
	again := g.beginTurn(t, "s1")
	require.Equal(t, lowestEpoch(1), again.Epoch)
	require.Equal(t, 2, again.Attempt)
}

func TestGuard_DetectsARestoredBackup(t *testing.T) {
	for name, kept := range map[string]bool{"an old backup": true, "no data": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartServer(t)
			records := inmem.NewStoreRecords()
			g := startGuard(t, "redis://"+server.Addr, records)
			g.beginTurn(t, "s1")
			server.Kill()
			backup := ""
			if kept {
				backup = server.Backup()
			}
			server.Start()
			lost := g.beginTurn(t, "s2")
			require.Equal(t, lowestEpoch(1), lost.Epoch)
			before, _, err := records.Load(t.Context(), "redis")
			require.NoError(t, err)
			eventually(t, func(ctx context.Context) error { // until the record is some counts ahead of the backup
				if r, _, err := records.Load(ctx, "redis"); err != nil || r.Beat > before.Beat+2 {
					return err
				}
				return context.DeadlineExceeded
			})

			server.Kill()
			server.Restore(backup)
			server.Start()
			turn := g.beginTurn(t, "s2")
			require.Equal(t, lowestEpoch(2), turn.Epoch, "above every epoch that was granted before")
			require.EqualValues(t, 1, g.rollbacks(t))
			require.Len(t, g.logs.FilterMessageSnippet("went back in time").FilterLevelExact(zap.ErrorLevel).All(), 1)
		})
	}
}

// All replicas of the service agree on one generation, whichever detects the restart first.
func TestGuard_ReplicasAgree(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	records := inmem.NewStoreRecords()
	replicas := []*guardedStore{startGuard(t, "redis://"+server.Addr, records), startGuard(t, "redis://"+server.Addr, records), startGuard(t,
		"redis://"+server.Addr, records)}
	for i, g := range replicas {
		require.EqualValues(t, 1, g.beginTurn(t, []string{"a1", "a2", "a3"}[i]).Epoch)
	}
	server.Kill()
	server.Start()
	for i, g := range replicas {
		require.Equal(t, lowestEpoch(1), g.beginTurn(t, []string{"b1", "b2", "b3"}[i]).Epoch)
		require.Zero(t, g.rollbacks(t))
	}
}

func TestGuard_KeepsTheGenerationWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	records := etcdregistry.NewStoreRecords(etcd.Client(), "")
	server := redistest.StartServer(t)
	g := startGuard(t, "redis://"+server.Addr, records)
	open := g.beginTurn(t, "s1")
	etcd.Stop()
	eventually(t, func(context.Context) error {
		if g.logs.FilterMessageSnippet("cannot be agreed").Len() > 0 {
			return nil
		}
		return context.DeadlineExceeded
	})

	// While the registry is unreachable, the generation stays valid. A replica that starts in this time reads the
	// generation from the mark.
	require.EqualValues(t, 1, g.beginTurn(t, "s2").Epoch)
	late := startGuard(t, "redis://"+server.Addr, records)
	require.EqualValues(t, 1, late.beginTurn(t, "s3").Epoch)

	// If another process serves the data while the registry is unreachable, no turn begins. Turns that are already
	// open continue.
	server.Kill()
	server.Start()
	eventually(t, func(ctx context.Context) error {
		_, err := g.GetSession(ctx, session.Ref{Tenant: "default", Session: "s1"})
		return err
	})
	_, err := g.BeginTurn(t.Context(), beginRequest("s4"))
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
	_, err = g.GetSession(t.Context(), session.Ref{Tenant: "default", Session: "s4"})
	require.True(t, failure.ModeOf(err) == failure.NotFound, "error: %v", err)
	commitAnswer(t, g, "s1", open)

	etcd.Start()
	require.Equal(t, lowestEpoch(1), g.beginTurn(t, "s4").Epoch)
}

// If a Cluster master returns with older data or without data, no epoch is assigned twice.
func TestGuard_DetectsARolledBackClusterMaster(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"an old backup": true, "no data": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, masters := redistest.StartClusterServers(t)
			lost := masters[1]
			empty := ""
			if !kept { // an empty backup that still belongs to the Cluster
				lost.Kill()
				empty = lost.Backup()
				lost.Start()
			}
			records := inmem.NewStoreRecords()
			g := startGuard(t, url, records)
			granted := map[string]int64{}
			grant := func(names string) {
				for _, id := range names {
					granted[string(id)] = g.beginTurn(t, string(id)).Epoch
				}
			}
			grant("abcdefgh")
			backup := empty
			if kept {
				lost.Kill()
				backup = lost.Backup()
				lost.Start()
			}
			grant("ijklmnop")
			before, _, err := records.Load(t.Context(), "redis")
			require.NoError(t, err)
			eventually(t, func(ctx context.Context) error { // until the record is some counts ahead of the backup
				if r, _, err := records.Load(ctx, "redis"); err != nil || r.Beat > before.Beat+2 {
					return err
				}
				return context.DeadlineExceeded
			})

			lost.Kill()
			lost.Restore(backup)
			lost.Start()
			for id, epoch := range granted {
				require.Greater(t, g.beginTurn(t, id).Epoch, epoch, "session %s", id)
			}
			eventually(t, func(context.Context) error { // a late reply is counted late
				if g.rollbacks(t) == 0 {
					return context.DeadlineExceeded
				}
				return nil
			})
			require.EqualValues(t, 1, g.rollbacks(t))
		})
	}
}

// A failover begins a new generation. It raises no alarm if no write was lost.
func TestGuard_NewMasterRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	records := inmem.NewStoreRecords()
	g := startGuard(t, redistest.StartCluster(t), records)
	g.beginTurn(t, "s1")
	had, revision, err := records.Load(t.Context(), "redis")
	require.NoError(t, err)
	// The record is from a Cluster with a single master and a high counter.
	had.Identity, had.Beat = "none=gone", had.Beat+1000
	eventually(t, func(ctx context.Context) error {
		if swapped, err := records.Swap(ctx, "redis", had, revision); err != nil || swapped {
			return err
		}
		_, revision, err = records.Load(ctx, "redis")
		return errors.Join(err, context.DeadlineExceeded)
	})
	eventually(t, func(ctx context.Context) error {
		if r, _, err := records.Load(ctx, "redis"); err != nil || r.Beat > had.Beat && r.Generation == had.Generation+1 {
			return err
		}
		return context.DeadlineExceeded
	})
	require.Zero(t, g.rollbacks(t))
}
