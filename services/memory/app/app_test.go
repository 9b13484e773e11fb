package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runningApp is an App that runs until the test ends.
type runningApp struct {
	*App
	conn  *grpc.ClientConn
	ready chan struct{}
	logs  *observer.ObservedLogs
}

func runApp(t testing.TB, redisURL string, more ...func(*Config)) *runningApp {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	cfg := Config{GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Redis: redisURL, Grace: 5 * time.Second}
	for _, set := range more {
		set(&cfg)
	}
	a, err := New(telemetry.FromLogger(zap.New(core)), cfg)
	require.NoError(t, err)
	r := &runningApp{App: a, ready: make(chan struct{}), logs: logs}
	r.conn, err = rpc.Dial(a.GRPCAddr(), telemetry.Discard())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, func() { close(r.ready) }) }()
	t.Cleanup(func() {
		require.NoError(t, r.conn.Close())
		stop()
		require.NoError(t, <-done)
	})
	return r
}

// getProbe returns the status and body of a probe, once the port answers.
func (r *runningApp) getProbe(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.HTTPAddr()+path, nil)
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// awaitHealth waits until the gRPC health service reports the given status, and checks that /readyz agrees.
func (r *runningApp) awaitHealth(t *testing.T, want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	watch, err := healthpb.NewHealthClient(r.conn).Watch(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	for {
		got, err := watch.Recv()
		require.NoError(t, err, "waiting for %s", want)
		if got.GetStatus() == want {
			break
		}
	}
	code, _ := r.getProbe(t, "/readyz")
	require.Equal(t, want == healthpb.HealthCheckResponse_SERVING, code == http.StatusOK)
}

func beginTurn(ctx context.Context, r *runningApp, sessionID string) (memory.BeginResult, error) {
	return memoryrpc.New(r.conn).BeginTurn(ctx, memory.Begin{
		Ref: session.Ref{Session: sessionID}, TurnID: "t1", TraceID: "0af7651916cd43dd8448eb211c80319c",
		Fingerprint: "f", Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 10,
	})
}

func TestApp_WithoutRedisIsAliveAndNotReady(t *testing.T) {
	server := redistest.ReserveServer(t)
	r := runApp(t, "redis://user:hunter2@"+server.Addr+"/0")

	r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
	code, _ := r.getProbe(t, "/livez")
	require.Equal(t, http.StatusOK, code)
	_, body := r.getProbe(t, "/readyz")
	require.Contains(t, body, "redis: ")
	require.NotContains(t, body, "hunter2")
	_, err := beginTurn(t.Context(), r, "s1")
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
	require.NotEmpty(t, r.logs.FilterMessageSnippet("waiting for a dependency").All())
	for _, line := range r.logs.All() {
		require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "hunter2")
	}
}

func TestApp_ReadinessFollowsRedis(t *testing.T) {
	server := redistest.ReserveServer(t)
	r := runApp(t, "redis://"+server.Addr)
	r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)

	server.Start()
	r.awaitHealth(t, healthpb.HealthCheckResponse_SERVING)
	<-r.ready
	begun, err := beginTurn(t.Context(), r, "s1")
	require.NoError(t, err)
	require.Equal(t, memory.StatusBegun, begun.Status)

	// While Redis is unreachable, the service is not ready and calls fail. Acknowledged data still exist when
	// Redis is reachable again.
	server.Kill()
	r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
	_, err = beginTurn(t.Context(), r, "s2")
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
	code, _ := r.getProbe(t, "/startupz")
	require.Equal(t, http.StatusOK, code)

	server.Start()
	r.awaitHealth(t, healthpb.HealthCheckResponse_SERVING)
	again, err := beginTurn(t.Context(), r, "s1")
	require.NoError(t, err)
	require.Equal(t, begun.Turn.Epoch, again.Turn.Epoch)
	require.Empty(t, r.logs.FilterMessage("acknowledged turns are not durable").All())
}

func TestApp_IsNotReadyWhenRedisIsNotDurable(t *testing.T) {
	server := redistest.StartServer(t, "--appendfsync", "everysec")
	r := runApp(t, "redis://"+server.Addr)
	said := func() []observer.LoggedEntry { return r.logs.FilterMessage("waiting for a dependency").All() }
	require.Eventually(t, func() bool { return len(said()) == 1 }, 20*time.Second, 5*time.Millisecond)
	require.Contains(t, said()[0].ContextMap()["error"], "--durability: ")
	require.Contains(t, said()[0].ContextMap()["error"], "set appendfsync always, or ask for less than D1")
	r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
	require.Contains(t, said()[0].ContextMap()["error"], "until then no turn begins")
	_, err := beginTurn(t.Context(), r, "s1")
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
	require.ErrorContains(t, err, "redis at "+server.Addr+" is less durable than --durability D1 requires")
	require.ErrorContains(t, err, "set appendfsync always")

	// The service becomes ready without a restart when the settings of Redis are corrected.
	node := redis.NewClient(&redis.Options{Addr: server.Addr, DisableIdentity: true})
	defer node.Close()
	require.NoError(t, node.ConfigSet(t.Context(), "appendfsync", "always").Err())
	r.awaitHealth(t, healthpb.HealthCheckResponse_SERVING)
	_, err = beginTurn(t.Context(), r, "s1")
	require.NoError(t, err)
}

// The service checks the durability of each new Redis process, because Redis may restart with weaker settings
// before the service notices the outage.
func TestDurability_IsCheckedForEachRedisProcess(t *testing.T) {
	server := redistest.StartServer(t)
	r := runApp(t, "redis://"+server.Addr)
	<-r.ready
	_, err := beginTurn(t.Context(), r, "s1")
	require.NoError(t, err)
	node := redis.NewClient(&redis.Options{Addr: server.Addr, DisableIdentity: true})
	defer node.Close()
	require.NoError(t, node.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
	r.recordProcess("another")
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(r.durability.checkTurn()))
	require.ErrorContains(t, r.durability.checkRedis(t.Context()), "set appendfsync always")
	require.ErrorContains(t, r.durability.checkTurn(), "set appendfsync always")
	r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
	_, err = beginTurn(t.Context(), r, "s2")
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)

	require.NoError(t, node.ConfigSet(t.Context(), "appendfsync", "always").Err())
	r.awaitHealth(t, healthpb.HealthCheckResponse_SERVING)
	_, err = beginTurn(t.Context(), r, "s2")
	require.NoError(t, err)
}

// The service reports an unreachable Redis as unreachable, and not as less durable than required.
func TestDurability_UnreachableRedisIsNotReportedAsLessDurable(t *testing.T) {
	server := redistest.ReserveServer(t)
	r := runApp(t, "redis://"+server.Addr)
	err := r.durability.store.CheckDurability(t.Context())
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
	require.NotErrorIs(t, err, redisconn.ErrDurabilityUnknown)
	require.NotErrorIs(t, err, redisconn.ErrNotDurable)
}

func TestApp_WarnsWhenDurabilityIsNotRequired(t *testing.T) {
	server := redistest.StartServer(t, "--appendfsync", "everysec")
	r := runApp(t, "redis://"+server.Addr, func(cfg *Config) { cfg.Durability = "D0" })
	<-r.ready
	warnings := r.logs.FilterMessage("acknowledged turns are not durable").All()
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0].ContextMap()["error"], "set appendfsync always")
}

func TestApp_WarnsWhenRedisHidesItsSettings(t *testing.T) {
	server := redistest.StartServer(t, "--rename-command", "CONFIG", "forbidden")
	r := runApp(t, "redis://"+server.Addr)
	<-r.ready
	require.Len(t, r.logs.FilterMessage("acknowledged turns are not durable").All(), 1)
	_, err := beginTurn(t.Context(), r, "s1")
	require.NoError(t, err)
}

// The service also works with a Redis that rejects INFO and therefore does not identify its process.
func TestApp_ServesWhenRedisRejectsInfo(t *testing.T) {
	server := redistest.StartServer(t, "--rename-command", "INFO", "forbidden")
	r := runApp(t, "redis://"+server.Addr)
	<-r.ready
	require.Len(t, r.logs.FilterMessage("acknowledged turns are not durable").All(), 1)
	_, err := beginTurn(t.Context(), r, "s1")
	require.NoError(t, err)
}

func TestApp_DurabilityClassD2NeedsAReplica(t *testing.T) {
	server := redistest.StartServer(t)
	r := runApp(t, "redis://"+server.Addr, func(cfg *Config) { cfg.Durability = "D2" })
	said := func() []observer.LoggedEntry { return r.logs.FilterMessage("waiting for a dependency").All() }
	require.Eventually(t, func() bool { return len(said()) == 1 }, 20*time.Second, 5*time.Millisecond)
	require.Contains(t, said()[0].ContextMap()["error"], "set min-replicas-to-write 1")
	r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
}

// With etcd, a restart of Redis begins a new generation, whose epochs are higher than all before.
func TestApp_GenerationFollowsRedis(t *testing.T) {
	etcd := etcdtest.Start(t)
	server := redistest.StartServer(t)
	r := runApp(t, "redis://"+server.Addr, func(cfg *Config) { cfg.Etcd = etcd.Endpoints() })
	<-r.ready
	begun, err := beginTurn(t.Context(), r, "s1")
	require.NoError(t, err)
	require.EqualValues(t, 1, begun.Turn.Epoch)
	require.Zero(t, r.logs.FilterMessageSnippet("no --etcd").Len())

	server.Kill()
	r.awaitHealth(t, healthpb.HealthCheckResponse_NOT_SERVING)
	server.Start()
	r.awaitHealth(t, healthpb.HealthCheckResponse_SERVING)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begun, err = beginTurn(t.Context(), r, "s2"); err != nil; begun, err = beginTurn(t.Context(), r, "s2") {
		require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "error: %v", err)
		<-tick.C
	}
	require.EqualValues(t, 1<<32, begun.Turn.Epoch)
	kept, err := etcd.Client().Get(t.Context(), "/troupe/v1/store/redis")
	require.NoError(t, err)
	require.Contains(t, string(kept.Kvs[0].Value), `"generation":1,`)
}

func TestApp_LogsThatEtcdIsMissing(t *testing.T) {
	r := runApp(t, "redis://"+redistest.Start(t))
	<-r.ready
	require.Equal(t, 1, r.logs.FilterMessageSnippet("no --etcd").Len())
}

func TestNew_RejectsAPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, err = New(telemetry.Discard(), Config{GRPCAddr: "127.0.0.1:0", HTTPAddr: taken.Addr().String(), Redis: "redis://127.0.0.1:1"})
	require.ErrorContains(t, err, "--http-addr: cannot listen on "+taken.Addr().String())
	require.ErrorContains(t, err, "choose another address")
}

func TestNew_RejectsAnInvalidRedisURL(t *testing.T) {
	_, err := New(telemetry.Discard(), Config{GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Redis: "localhost:6379"})
	require.ErrorContains(t, err, "--redis: ")
	require.ErrorContains(t, err, "redis://")
}

func TestConfig_RejectsNegativeGrace(t *testing.T) {
	require.ErrorContains(t, (&Config{Grace: -time.Second}).Validate(), "--grace")
}
