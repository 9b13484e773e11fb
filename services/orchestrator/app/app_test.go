package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/loopback"
	"github.com/troupe-dev/troupe/test/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait in these tests. It is far longer than any wait should take.
const testTimeout = 30 * time.Second

const flowManifest = "apiVersion: troupe.dev/v1\nkind: Workflow\nmetadata: {name: flow}\nspec: {entry: one, steps: {one: {agent: one, end: true}}}\n"

func workflowFiles(text string) fstest.MapFS { return fstest.MapFS{"flow.yaml": {Data: []byte(text)}} }

// testConfig returns the defaults of the flags, with free ports.
func testConfig(t *testing.T, flags ...string) Config {
	t.Helper()
	cfg, err := parseFlags(t, append(flags, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")...)
	require.NoError(t, err)
	return cfg
}

func parseFlags(t *testing.T, flags ...string) (Config, error) {
	t.Helper()
	var cfg Config
	parser, err := kong.New(&cfg, kong.Exit(func(int) { t.Error("exit") }))
	require.NoError(t, err)
	_, err = parser.Parse(flags)
	return cfg, err
}

// service is the method that the programs of all three services have in common.
type service interface {
	Run(ctx context.Context, ready func()) error
}

// runService runs a service until the test ends. The returned channel is closed once the service is ready.
func runService(t *testing.T, s service) (ready <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	up, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { close(up) }) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return up
}

func getProbe(t *testing.T, a *App, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.HTTPAddr()+path, http.NoBody)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// await polls until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(t, "timed out waiting", what)
		}
	}
}

// An orchestrator that starts before its dependencies is alive but not ready. It reports which dependency it waits
// for and rejects calls. It becomes ready once all of them serve.
func TestApp_WaitsForItsDependencies(t *testing.T) {
	etcd, redis, memoryAddr := etcdtest.Start(t), redistest.ReserveServer(t), loopback.Address(t)
	etcd.Stop()
	core, logs := observer.New(zap.InfoLevel)
	a, err := New(telemetry.FromLogger(zap.New(core)), testConfig(t,
		"--etcd", etcd.Endpoints()[0], "--memory", memoryAddr, "--redis", "redis://user:hunter2@"+redis.Addr+"/0"), workflowFiles(flowManifest))
	require.NoError(t, err)
	ready := runService(t, a)
	await(t, "it lives", func() bool { code, _ := getProbe(t, a, "/livez"); return code == http.StatusOK })
	await(t, "it says what is missing", func() bool {
		code, body := getProbe(t, a, "/readyz")
		return code == http.StatusServiceUnavailable && body == "memory: "+memoryAddr+" cannot be reached\nregistry: not yet\ntrace store: "+redis.Addr+" cannot be reached\n"
	})
	for _, address := range []string{etcd.Endpoints()[0], memoryAddr, redis.Addr} {
		await(t, "the log names "+address, func() bool {
			for _, line := range logs.All() {
				if line.Level >= zap.WarnLevel && strings.Contains(fmt.Sprint(line.ContextMap()), address) {
					return true
				}
			}
			return false
		})
	}
	for _, line := range logs.All() {
		require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "hunter2")
	}
	conn, err := rpc.Dial(a.GRPCAddr(), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	mesh := client.New(conn)
	_, err = mesh.ListTraces(t.Context(), &troupev1.ListTracesRequest{})
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(grpcfailure.FromStatus("test", err)), "%v", err)

	etcd.Start()
	redis.Start()
	m, err := memory.New(telemetry.Discard(), memory.Config{GRPCAddr: memoryAddr, HTTPAddr: "127.0.0.1:0", Redis: "redis://" + redis.Addr, Grace: time.Second})
	require.NoError(t, err)
	runService(t, m)
	await(t, "it wants a password that this Redis has none for", func() bool {
		_, body := getProbe(t, a, "/readyz")
		return body == "trace store: "+redis.Addr+" does not accept the user and password of the service\n"
	})
	select {
	case <-ready:
		require.Fail(t, "ready without its store")
	default:
	}
}

func TestApp_BecomesReadyWhenAllDependenciesServe(t *testing.T) {
	etcd, redis := etcdtest.Start(t), redistest.StartServer(t)
	m, err := memory.New(telemetry.Discard(), memory.Config{
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Redis: "redis://" + redis.Addr,
		Grace: time.Second,
	})
	require.NoError(t, err)
	runService(t, m)
	a, err := New(telemetry.Discard(), testConfig(t, "--etcd", etcd.Endpoints()[0], "--memory", m.GRPCAddr(), "--redis", "redis://"+redis.Addr),
		workflowFiles(flowManifest))
	require.NoError(t, err)
	<-runService(t, a)
	code, _ := getProbe(t, a, "/readyz")
	require.Equal(t, http.StatusOK, code)
	redis.Kill()
	await(t, "it says so when its store goes away", func() bool {
		_, body := getProbe(t, a, "/readyz")
		return strings.Contains(body, "trace store: "+redis.Addr+" cannot be reached")
	})
	redis.Start()
	await(t, "it is ready again", func() bool { code, _ := getProbe(t, a, "/readyz"); return code == http.StatusOK })
}

// readyWorker is a fake worker that reports the state READY at its own address.
type readyWorker struct {
	troupev1.UnimplementedLifecycleServiceServer
}

func (readyWorker) GetState(context.Context, *troupev1.GetStateRequest) (*troupev1.GetStateResponse, error) {
	return &troupev1.GetStateResponse{Status: &troupev1.InstanceStatus{State: troupev1.InstanceState_INSTANCE_STATE_READY}}, nil
}

func serveReadyWorker(t *testing.T) (address string) {
	t.Helper()
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{})
	require.NoError(t, err)
	troupev1.RegisterLifecycleServiceServer(server, readyWorker{})
	lis, err := rpc.Listen("test", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return lis.Addr().String()
}

// While etcd is unreachable, an orchestrator can start from an earlier snapshot. It uses the instances that still
// answer (guarantee F10).
func TestApp_StartsFromItsSnapshotWithoutEtcd(t *testing.T) {
	etcd, redis := etcdtest.Start(t), redistest.StartServer(t)
	m, err := memory.New(telemetry.Discard(), memory.Config{
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Redis: "redis://" + redis.Addr,
		Grace: time.Second,
	})
	require.NoError(t, err)
	runService(t, m)
	snapshot := filepath.Join(t.TempDir(), "instances.json")
	cfg := testConfig(t, "--etcd", etcd.Endpoints()[0], "--memory", m.GRPCAddr(), "--redis", "redis://"+redis.Addr, "--snapshot", snapshot)
	registered := etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{})
	for id, address := range map[string]string{"alive": serveReadyWorker(t), "dead": loopback.Address(t)} {
		in := registrytest.NewInstance("one", id)
		in.Address, in.State = address, lifecycle.Ready
		registrytest.Register(t, registered, in)
	}
	first, err := New(telemetry.Discard(), cfg, workflowFiles(flowManifest))
	require.NoError(t, err)
	<-runService(t, first)
	await(t, "the snapshot is written", func() bool {
		text, err := os.ReadFile(snapshot)
		return err == nil && strings.Contains(string(text), `"instanceId":"alive"`) && strings.Contains(string(text), `"dead"`)
	})
	etcd.Stop()

	second, err := New(telemetry.Discard(), cfg, workflowFiles(flowManifest))
	require.NoError(t, err)
	<-runService(t, second)
	conn, err := rpc.Dial(second.GRPCAddr(), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	resp, err := client.New(conn).ListInstances(t.Context(), &troupev1.ListInstancesRequest{})
	require.NoError(t, err)
	require.Len(t, resp.GetInstances(), 1)
	require.Equal(t, "alive", resp.GetInstances()[0].GetInstanceId())
}

func TestNew_ReportsInvalidFilesAndAddresses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for name, c := range map[string]struct {
		change func(*Config)
		text   string
		want   string
	}{
		"misspelled": {func(*Config) {}, strings.Replace(flowManifest, "entry", "entri", 1), `flow.yaml:4: unknown field "entri"; did you mean "entry"?`},
		"no step":    {func(*Config) {}, strings.Replace(flowManifest, "entry: one", "entry: two", 1), `flow.yaml:4: entry: unknown step "two"; want one of one`},
		"workflow":   {func(c *Config) { c.Workflow = "other" }, flowManifest, `no workflow is called "other"; there are: flow`},
		"port":       {func(c *Config) { c.HTTPAddr = taken.Addr().String() }, flowManifest, "--http-addr: cannot listen on " + taken.Addr().String()},
		"redis":      {func(c *Config) { c.Stores.Redis = "localhost:hunter2" }, flowManifest, "--redis: redis URL: "},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			c.change(&cfg)
			_, err := New(telemetry.Discard(), cfg, workflowFiles(c.text))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// Without files from the caller, New reads the folder that the flag names.
func TestNew_ReadsTheFolderOfTheFlag(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "flow.yaml"), []byte(flowManifest), 0o600))
	a, err := New(telemetry.Discard(), testConfig(t, "--agents", folder), nil)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "again")

	absent := filepath.Join(folder, "absent")
	_, err = New(telemetry.Discard(), testConfig(t, "--agents", absent), nil)
	require.ErrorContains(t, err, "--agents "+absent)
}

func TestConfig_RejectsInvalidSettings(t *testing.T) {
	for want, flags := range map[string][]string{
		"--timeout: 100ms is not between 1s and 10m0s":    {"--timeout", "100ms"},
		"--timeout: 1h0m0s is not between 1s and 10m0s":   {"--timeout", "1h"},
		"--route-wait: -1s is below zero":                 {"--route-wait=-1s"},
		"--trace-retention: 1s is below a minute":         {"--trace-retention", "1s"},
		"--drain: -1s is below zero":                      {"--drain=-1s"},
		"--max-queue: -1 is below zero; 0 is the default": {"--max-queue=-1"},
		"--max-queue-time: -1s is below zero":             {"--max-queue-time=-1s"},
		"--log-level must be one of":                      {"--log-level", "loud"},
		`unknown flag --rediss, did you mean "--redis"?`:  {"--rediss", "x"},
		"--timeout: expected duration":                    {"--timeout", "soon"},
		`--memory: "foo" is not host:port`:                {"--memory", "foo"},
		`--memory: "" is not host:port`:                   {"--memory", ""},
		`--instance-id: "a b/c"`:                          {"--instance-id", "a b/c"},
	} {
		_, err := parseFlags(t, flags...)
		require.ErrorContains(t, err, want)
	}
	cfg, err := parseFlags(t)
	require.NoError(t, err)
	cfg.Discovery.Etcd = nil
	require.ErrorContains(t, cfg.Validate(), "--etcd: at least one address is needed")
}

// A dependency that is reachable but fails is not reported as unreachable. The report contains its error.
func TestApp_ReportsWhyAStoreDoesNotServe(t *testing.T) {
	etcd, redis, weak := etcdtest.Start(t), redistest.StartGuarded(t), redistest.StartServer(t, "--appendfsync", "everysec")
	m, err := memory.New(telemetry.Discard(), memory.Config{
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Redis: "redis://" + weak.Addr,
		Grace: time.Second,
	})
	require.NoError(t, err)
	runService(t, m)
	for user, store := range map[string]string{
		"orchestrator": "",
		"memory":       "trace store: " + redis.Addr + " does not permit the user of the service to use scripts on keys o:*; grant what users.acl says\n",
	} {
		a, err := New(telemetry.Discard(), testConfig(t, "--etcd", etcd.Endpoints()[0], "--memory", m.GRPCAddr(), "--redis", redistest.UserURL(user,
			redis.Addr)), workflowFiles(flowManifest))
		require.NoError(t, err)
		runService(t, a)
		await(t, "it says why", func() bool {
			_, body := getProbe(t, a, "/readyz")
			return body == "memory: "+m.GRPCAddr()+" is not ready\n"+store
		})
	}
}
