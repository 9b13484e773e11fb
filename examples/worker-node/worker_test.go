//go:build node

// Package workernode_test tests the TypeScript worker as a process: with the conformance kit, and in a mesh. It
// needs Node, and `npm run build` first; see the Makefile.
package workernode_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/conformance"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/standalone"
	"github.com/troupe-dev/troupe/test/loopback"
)

// patience bounds every wait. It is far longer than any passing test waits.
const patience = time.Minute

// startNodeWorker runs the worker. stop sends SIGTERM and requires exit code 0.
func startNodeWorker(t *testing.T, env []string, args ...string) (stop func()) {
	t.Helper()
	var said strings.Builder
	cmd := exec.Command("node", append([]string{"dist/src/main.js"}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &said, &said
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Log(&said)
		}
	})
	return func() {
		stopped = true
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, <-ended)
	}
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(t, "waited in vain", what)
		}
	}
}

func TestWorker_Conforms(t *testing.T) {
	address := loopback.Address(t)
	stop := startNodeWorker(t, nil, "--conformance", "--grpc-addr", address, "--http-addr", "127.0.0.1:0")
	await(t, "it serves", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	report, err := conformance.Run(t.Context(), conformance.Config{Address: address, Repeat: 2})
	require.NoError(t, err)
	var table strings.Builder
	require.NoError(t, report.WriteTable(&table, false))
	require.Zero(t, report.FailedCount(), "%s", &table)
	stop()
}

// The worker joins a mesh, answers turns, and deregisters when it is stopped.
func TestWorker_TakesTurnsInAMesh(t *testing.T) {
	const agent = `{apiVersion: troupe.dev/v1, kind: Agent, metadata: {name: other}, spec: {model: builtin/extractive}}`
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	up, ended := make(chan standalone.Endpoints, 1), make(chan error, 1)
	go func() {
		ended <- standalone.Run(ctx, telemetry.Discard(), standalone.Config{
			DataDir: t.TempDir(), GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
			Agents: fstest.MapFS{"agents.yaml": {Data: []byte(agent)}}, Drain: time.Second,
		}, func(e standalone.Endpoints) { up <- e })
	}()
	defer func() { cancel(); require.NoError(t, <-ended) }()
	mesh := <-up
	conn, err := rpc.Dial(mesh.GRPC, telemetry.Discard())
	require.NoError(t, err)
	defer conn.Close()
	c := client.New(conn)
	var address string // address of the worker
	registered := func() int {
		resp, err := c.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "words"})
		require.NoError(t, err)
		ready := 0
		for _, in := range resp.GetInstances() {
			if in.GetState() == troupev1.InstanceState_INSTANCE_STATE_READY {
				address = in.GetAddress()
				ready++
			}
		}
		return ready
	}

	ca, err := identity.OpenCA(mesh.DevCA)
	require.NoError(t, err)
	own, err := ca.WriteFiles(identity.Worker, "words")
	require.NoError(t, err)
	require.NoError(t, etcdauth.ProvisionWithDevCA(t.Context(), mesh.DevCA, mesh.Etcd, "words"))
	stop := startNodeWorker(t, []string{
		"TROUPE_ETCD=" + strings.Join(mesh.Etcd, ","), "TROUPE_MEMORY=" + mesh.Memory,
		"TROUPE_TLS_CERT=" + own.Cert, "TROUPE_TLS_KEY=" + own.Key, "TROUPE_TLS_CA=" + own.CA,
	},
		"--grpc-addr", loopback.Address(t), "--http-addr", "127.0.0.1:0")
	await(t, "it is found", func() bool { return registered() == 1 })
	for role, want := range map[identity.Role]failure.Mode{identity.Orchestrator: "", identity.Memory: failure.UserPermission} {
		self, err := identity.Open(identity.Config{DevCA: mesh.DevCA}, role, "", zap.NewNop())
		require.NoError(t, err)
		inside, err := rpc.DialWith(self.ClientCredentials(identity.Worker, "words"), address, telemetry.Discard())
		require.NoError(t, err)
		_, err = troupev1.NewLifecycleServiceClient(inside).GetState(t.Context(), &troupev1.GetStateRequest{})
		require.NoError(t, inside.Close())
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, want, failure.ModeOf(grpcfailure.FromStatus("test", err)), "%v", err)
	}
	for turn := range 3 {
		var result *troupev1.TurnResult
		for e, err := range c.Turn(t.Context(), &troupev1.OrchestrateRequest{
			Target: "words", SessionId: "s1", Input: &troupev1.OrchestrateRequest_Text{Text: "one two three"},
		}) {
			require.NoError(t, err)
			require.EqualValues(t, turn+1, e.GetTurn())
			result = e.GetTurnResult()
		}
		require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, result.GetOutcome(), "%v", result)
		require.Contains(t, result.GetText(), "3")
	}
	stop()
	await(t, "it is gone", func() bool { return registered() == 0 })
}
