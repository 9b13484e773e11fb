package worker_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
	memoryapp "github.com/troupe-dev/troupe/services/memory/app"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/loopback"
	"github.com/troupe-dev/troupe/test/parallel"
)

func TestMain(m *testing.M) {
	parallel.SetMinimum(16)
	goleak.VerifyTestMain(m)
}

// waitTimeout bounds every wait. It is far longer than a wait should take.
const waitTimeout = 30 * time.Second

const anyPort = "127.0.0.1:0"

// workerEnv holds the services that a worker needs: an etcd for the registry and a memory service.
type workerEnv struct {
	*registrytest.Observer
	etcd       *etcdtest.Etcd
	redis      *miniredis.Miniredis
	memory     memory.Store
	memoryAddr string
	memoryLogs *observer.ObservedLogs
	identity   identity.Config // identity configuration of all processes (empty means none)

	registrationTTL time.Duration // TTL of worker registrations (0 means the default)
}

func newWorkerEnv(t *testing.T) *workerEnv {
	t.Helper()
	return newWorkerEnvWithIdentity(t, identity.Config{})
}

func newWorkerEnvWithIdentity(t *testing.T, by identity.Config) *workerEnv {
	t.Helper()
	t.Parallel() // tests share no state
	s := &workerEnv{etcd: etcdtest.Start(t), redis: miniredis.RunT(t), identity: by}
	core, logs := observer.New(zap.DebugLevel)
	s.memoryLogs = logs
	app, _ := s.startMemory(t, zap.New(core), anyPort)
	s.memoryAddr = app.GRPCAddr()
	s.memory = memoryrpc.New(s.dial(t, identity.Memory, "", s.memoryAddr))
	s.Observer = registrytest.Observe(t, etcdregistry.New(s.etcd.Client(), zap.NewNop(), etcdregistry.Config{}))
	return s
}

// startMemory starts a memory service and waits until it is ready.
func (e *workerEnv) startMemory(t *testing.T, log *zap.Logger, address string) (*memoryapp.App, *backgroundProcess) {
	t.Helper()
	app, err := memoryapp.New(telemetry.FromLogger(log), memoryapp.Config{
		GRPCAddr: address, HTTPAddr: anyPort, Redis: "redis://" + e.redis.Addr(), Grace: time.Second, Sessions: memoryapp.SessionConfig{KeepJournals: time.Hour}, Identity: e.identity,
	})
	require.NoError(t, err)
	p := startProcess(t, app.Run)
	receive(t, p.ready)
	return app, p
}

// backgroundProcess is a running process that ends by stop or at the end of the test.
type backgroundProcess struct {
	cancel context.CancelFunc
	ready  chan struct{} // closed when the process reports that it is ready
	done   chan struct{}
	err    error // result of Run, once done is closed
}

func startProcess(t *testing.T, run func(context.Context, func()) error) *backgroundProcess {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p := &backgroundProcess{cancel: cancel, ready: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = run(ctx, func() { close(p.ready) })
	}()
	t.Cleanup(func() { _ = p.stop() })
	return p
}

// stop stops the process, as SIGTERM does, and returns the result of its Run.
func (p *backgroundProcess) stop() error { p.cancel(); <-p.done; return p.err }

// awaitEnd waits until the process ends on its own, and returns the result of its Run.
func (p *backgroundProcess) awaitEnd(t *testing.T) error {
	t.Helper()
	receive(t, p.done)
	return p.err
}

// dial connects, as an orchestrator, to a process with the given role and agent.
func (e *workerEnv) dial(t *testing.T, role identity.Role, agent, address string) *grpc.ClientConn {
	t.Helper()
	self, err := identity.Open(e.identity, identity.Orchestrator, "", zap.NewNop())
	require.NoError(t, err)
	conn, err := rpc.DialWith(self.ClientCredentials(role, agent), address, telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// runningWorker is a running worker with clients of its services.
type runningWorker struct {
	*backgroundProcess
	troupev1.LifecycleServiceClient
	steps troupev1.AgentServiceClient
	logs  *observer.ObservedLogs

	agent string
	grpc  string
	http  string
}

// registryKey returns the registry key of the worker.
func (r *runningWorker) registryKey() registry.Key { return registry.Key{Agent: r.agent, ID: "i1"} }

// startWithoutWaiting starts a worker of the agent and returns before it is ready.
func (e *workerEnv) startWithoutWaiting(t *testing.T, c agent.Config) *runningWorker {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	a, err := agent.New(c)
	require.NoError(t, err)
	r := &runningWorker{logs: logs, agent: c.Name, grpc: loopback.Address(t), http: loopback.Address(t)}
	w, err := worker.New(telemetry.FromLogger(zap.New(core)), worker.Config{
		GRPCAddr: r.grpc, HTTPAddr: r.http, InstanceID: "i1", Etcd: e.etcd.Endpoints(), Memory: e.memoryAddr, Drain: waitTimeout, Identity: e.identity,
	}.WithRegistrationTTL(e.registrationTTL), a)
	require.NoError(t, err)
	conn := e.dial(t, identity.Worker, c.Name, r.grpc)
	r.LifecycleServiceClient, r.steps = troupev1.NewLifecycleServiceClient(conn), troupev1.NewAgentServiceClient(conn)
	r.backgroundProcess = startProcess(t, w.Run)
	return r
}

// start starts a worker and waits until it is ready.
func (e *workerEnv) start(t *testing.T, c agent.Config) *runningWorker {
	t.Helper()
	r := e.startWithoutWaiting(t, c)
	receive(t, r.ready)
	return r
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case v = <-from:
	case <-timer.C:
		require.FailNow(t, "nothing was received in time")
	}
	return v
}

// awaitCondition waits until the condition holds.
func awaitCondition(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(t, "the condition did not hold in time", what)
		}
	}
}

func (r *runningWorker) status(t *testing.T) *troupev1.InstanceStatus {
	t.Helper()
	resp, err := r.GetState(t.Context(), &troupev1.GetStateRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return resp.GetStatus()
}

// probe returns the status code and the body of a probe.
func (r *runningWorker) probe(t *testing.T, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitTimeout}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.http+path, http.NoBody)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// awaitReadiness waits until the readiness probe returns the status code and a body that contains the line.
func (r *runningWorker) awaitReadiness(t *testing.T, code int, line string) {
	t.Helper()
	awaitCondition(t, "/readyz says "+line, func() bool {
		got, body := r.probe(t, "/readyz")
		return got == code && strings.Contains(body, line+"\n")
	})
}

// beginTurn begins a turn and returns the request for its only step.
func (e *workerEnv) beginTurn(t *testing.T, agent, sessionID string) *troupev1.ExecuteStepRequest {
	t.Helper()
	return e.beginTurnWithID(t, agent, sessionID, "t1")
}

// beginTurnWithID is like beginTurn, for a turn with the given id. The session may have earlier turns.
func (e *workerEnv) beginTurnWithID(t *testing.T, agent, sessionID, turnID string) *troupev1.ExecuteStepRequest {
	t.Helper()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	begun, err := e.memory.BeginTurn(t.Context(), memory.Begin{
		Ref: session.Ref{Session: sessionID}, TurnID: turnID, TraceID: trace, Fingerprint: "f",
		Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	return &troupev1.ExecuteStepRequest{
		TraceId: trace, SessionId: sessionID, TurnId: turnID, Turn: int32(begun.Turn.Number), Step: 1, Attempt: 1, Epoch: begun.Turn.Epoch,
		Agent: agent, History: wire.MessagesToProto(begun.History), BaseSequence: begun.Turn.Sequence, Last: true,
		Goal: "What may an agent write?", Task: "What may an agent write?", HasRounds: slices.Contains(begun.Agents, agent),
	}
}

// storedSession returns the stored session and its messages.
func (e *workerEnv) storedSession(t *testing.T, sessionID string) (session.Session, []conversation.Message) {
	t.Helper()
	ref := session.Ref{Session: sessionID}
	found, err := e.memory.GetSession(t.Context(), ref)
	require.NoError(t, err)
	messages, err := e.memory.LoadHistory(t.Context(), ref, 0, 100)
	require.NoError(t, err)
	return found, messages
}

// gatedTool is a tool whose Start blocks until the test sends its result.
type gatedTool struct {
	name        string
	startResult chan error // receives the result of Start
	closed      chan struct{}
}

func newGatedTool(name string) *gatedTool {
	return &gatedTool{name, make(chan error, 1), make(chan struct{}, 1)}
}

func (g *gatedTool) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: g.name, Description: "A gate.", Schema: json.RawMessage(`{"type":"object"}`)}
}

func (g *gatedTool) Call(context.Context, json.RawMessage) (tool.Result, error) {
	return tool.Result{}, nil
}

func (g *gatedTool) Start(ctx context.Context) error {
	select {
	case err := <-g.startResult:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gatedTool) Close() error { g.closed <- struct{}{}; return nil }
