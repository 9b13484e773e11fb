package standalone_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/standalone"
	"github.com/troupe-dev/troupe/test/gobuild"
)

func TestMain(m *testing.M) {
	// The Gemini SDK starts a goroutine when it is imported, so the leak check ignores it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// testTimeout bounds every wait in these tests. It is far longer than any wait should take.
const testTimeout = time.Minute

// testConfig returns the settings of a mesh with the research assistant and one document.
func testConfig(t *testing.T) standalone.Config {
	t.Helper()
	docs := t.TempDir()
	text := "# Ownership\n\nAn agent may write the keys of its own tier and no other.\n"
	require.NoError(t, os.WriteFile(filepath.Join(docs, "ownership.md"), []byte(text), 0o600))
	return standalone.Config{
		DataDir: t.TempDir(), GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		Agents: researchassistant.FS, Docs: docs, Drain: 10 * time.Second,
	}
}

// runningMesh is a mesh with a client. It stops when stop is called or the test ends.
type runningMesh struct {
	standalone.Endpoints
	*client.Client
	stop func()
}

func runMesh(t *testing.T, cfg standalone.Config) *runningMesh {
	t.Helper()
	return runMeshWith(t, telemetry.Discard(), cfg)
}

func runMeshWith(t *testing.T, tel *telemetry.Telemetry, cfg standalone.Config) *runningMesh {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan standalone.Endpoints, 1), make(chan error, 1)
	go func() {
		ended <- standalone.Run(ctx, tel, cfg, func(e standalone.Endpoints) { ready <- e })
	}()
	m := &runningMesh{}
	select {
	case m.Endpoints = <-ready:
	case err := <-ended:
		cancel()
		require.FailNow(t, "the mesh ended before it was ready", "%v", err)
	}
	conn, err := rpc.Dial(m.GRPC, telemetry.Discard())
	require.NoError(t, err)
	m.Client = client.New(conn)
	stopped := false
	m.stop = func() {
		cancel()
		if !stopped {
			stopped = true
			require.NoError(t, conn.Close())
			require.NoError(t, <-ended)
		}
	}
	t.Cleanup(m.stop)
	return m
}

// ask runs a turn with the question and returns its events and its result.
func (m *runningMesh) ask(t *testing.T, req *troupev1.OrchestrateRequest, text string) (events []*troupev1.Event, result *troupev1.TurnResult) {
	t.Helper()
	req.Input = &troupev1.OrchestrateRequest_Text{Text: text}
	for e, err := range m.Turn(t.Context(), req) {
		require.NoError(t, err)
		events = append(events, e)
	}
	return events, events[len(events)-1].GetTurnResult()
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

func (m *runningMesh) readyInstances(t *testing.T, agent string) int {
	t.Helper()
	resp, err := m.ListAgents(t.Context(), &troupev1.ListAgentsRequest{})
	require.NoError(t, err)
	for _, a := range resp.GetAgents() {
		if a.GetName() == agent {
			return int(a.GetReady())
		}
	}
	return 0
}

func TestRun_KeepsItsDataOverARestart(t *testing.T) {
	cfg := testConfig(t)
	first := runMesh(t, cfg)
	require.Equal(t, []string{"coordinator", "clarification", "research", "synthesis"}, first.Agents)
	events, result := first.ask(t, &troupev1.OrchestrateRequest{SessionId: "kept"}, "What may an agent write?")
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, result.GetOutcome())
	require.Contains(t, result.GetText(), "ownership.md:3")
	require.EqualValues(t, 4, events[0].GetTurnStarted().GetInstancesReady())
	first.stop()

	second := runMesh(t, cfg)
	again, result := second.ask(t, &troupev1.OrchestrateRequest{SessionId: "kept"}, "And which keys of its own tier?")
	require.EqualValues(t, 2, again[0].GetTurn())
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, result.GetOutcome())
	old, err := second.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: events[0].GetTraceId()})
	require.NoError(t, err)
	require.Equal(t, troupev1.TraceState_TRACE_STATE_ENDED, old.GetTrace().GetState())
}

// The example of the README works: an agent in its own program joins the mesh, gets calls by its name, and leaves
// the mesh when it stops.
// Req: LC-23
func TestRun_GoAgentJoinsAndLeavesTheMesh(t *testing.T) {
	programs, err := gobuild.Build("", "../../examples/hello-agent")
	require.NoError(t, err)
	m := runMesh(t, testConfig(t))
	require.Zero(t, m.readyInstances(t, "hello"))

	hello := exec.Command(filepath.Join(programs, "hello-agent"), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	hello.Env = append(os.Environ(), "TROUPE_ETCD="+strings.Join(m.Etcd, ","), "TROUPE_MEMORY="+m.Memory, "TROUPE_TLS_DEV_CA="+m.DevCA)
	var said strings.Builder
	hello.Stderr = &said
	require.NoError(t, hello.Start())
	ended := make(chan error, 1)
	go func() { ended <- hello.Wait() }()
	defer func() { _ = hello.Process.Kill() }() // it has ended, unless the test failed
	await(t, "hello is ready", func() bool { return m.readyInstances(t, "hello") == 1 })

	events, result := m.ask(t, &troupev1.OrchestrateRequest{Target: "hello"}, "How do I say hello in Norwegian?")
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, result.GetOutcome(), "%v", result)
	require.Equal(t, "hello", result.GetAgent())
	require.Contains(t, result.GetText(), "In Norwegian one says hei.")
	require.Equal(t, "hello", events[0].GetTurnStarted().GetTarget())

	require.NoError(t, hello.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-ended, "%s", &said)
	await(t, "hello is gone", func() bool { return m.readyInstances(t, "hello") == 0 })
	for _, err := range m.Turn(t.Context(), &troupev1.OrchestrateRequest{
		Target: "hello", Input: &troupev1.OrchestrateRequest_Text{Text: "Are you there?"},
	}) {
		require.Equal(t, failure.NotFound, failure.ModeOf(err), "%v", err)
	}
}

func TestConfig_RejectsOtherAddressesThanLoopback(t *testing.T) {
	for addr, fits := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:7400": true, "localhost:7400": true,
		"0.0.0.0:0": false, ":7400": false, "[::]:0": false, "192.0.2.1:7400": false,
	} {
		err := standalone.Config{GRPCAddr: addr}.Check()
		if fits {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "--grpc-addr: other machines reach "+addr)
			require.ErrorContains(t, err, "--insecure-plaintext-beyond-loopback")
		}
		require.NoError(t, standalone.Config{GRPCAddr: addr, InsecurePlaintext: true}.Check())
	}
	require.ErrorContains(t, standalone.Config{GRPCAddr: "7400", InsecurePlaintext: true}.Check(), "--grpc-addr: ")

	data := filepath.Join(t.TempDir(), "data")
	require.ErrorContains(t, standalone.Run(t.Context(), telemetry.Discard(), standalone.Config{GRPCAddr: "0.0.0.0:0", DataDir: data}, nil), "--grpc-addr: ")
	require.NoDirExists(t, data)
}

func TestRun_FailsWhenAPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg := testConfig(t)
	cfg.HTTPAddr = taken.Addr().String()
	err = standalone.Run(t.Context(), telemetry.Discard(), cfg, func(standalone.Endpoints) { t.Error("ready") })
	require.ErrorContains(t, err, "--http-addr: cannot listen on "+taken.Addr().String())
	for _, store := range []string{"etcd", "redis"} {
		require.NoDirExists(t, filepath.Join(cfg.DataDir, store), "no store was started")
	}
}

func TestRun_FailsWhenAnAgentDoesNotStart(t *testing.T) {
	cfg := testConfig(t)
	cfg.Docs = filepath.Join(cfg.Docs, "nowhere")
	err := standalone.Run(t.Context(), telemetry.Discard(), cfg, func(standalone.Endpoints) { t.Error("ready") })
	require.ErrorContains(t, err, "search_documents")
	require.ErrorContains(t, err, "nowhere does not exist")
}

func TestRun_ReportsInvalidAgents(t *testing.T) {
	for name, c := range map[string]struct{ manifest, want string }{
		"none": {
			"apiVersion: troupe.dev/v1\nkind: Workflow\nmetadata: {name: w}\nspec: {entry: a, steps: {a: {agent: a, end: true}}}\n",
			"declares no agent",
		},
		"typo": {
			"apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: a}\nspec:\n  modle: builtin/extractive\n",
			`a.yaml:5: unknown field "modle"; did you mean "model"?`,
		},
		"prefix": {"apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: a}\nspec:\n  model: none/such\n", "builtin/"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Agents = fstest.MapFS{"a.yaml": {Data: []byte(c.manifest)}}
			err := standalone.Run(t.Context(), telemetry.Discard(), cfg, func(standalone.Endpoints) { t.Error("ready") })
			require.ErrorContains(t, err, c.want)
		})
	}
}
