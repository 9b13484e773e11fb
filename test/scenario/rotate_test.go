package scenario

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/gate"
)

const (
	firstLifetime = 40 * time.Second // lifetime of certificates; connections are renewed after a quarter of it
	connLifetime  = firstLifetime / 4 * 11 / 10
)

// While clients run turns continuously, every certificate of the mesh is replaced, and then the CA. This includes
// services and workers, their etcd client certificates, etcd itself, and the client port. No turn fails, not even
// one in the middle of a step. At the end no part trusts the first CA.
func TestRotation_Binaries(t *testing.T) {
	t.Parallel()
	s := &gatedMesh{rig.StartBinaries(t, rig.Config{CertificateLifetime: firstLifetime}), gate.New(t)}
	worker, program := rig.SlowWorker(s.gate, 1)
	s.HostWorker(worker, program)
	s.awaitAgent(t, "slow")
	s.RenewCertificates(time.Hour)
	s.AwaitNewKeys(1)
	load, up := s.startLoad(t), time.Now()
	req, key := slowRequest("hold")
	held := s.startTurn(t, req)
	s.gate.AwaitCall(t, key)
	load.awaitNewConnections(t)

	parts := []rig.Part{rig.Memory, worker}
	for _, agent := range rig.Agents {
		parts = append(parts, rig.Worker(agent))
	}
	var late []func() error // checks of an orchestrator that the rotation leaves out
	for _, p := range parts {
		ask := healthCheck(t, s.DialAs(identity.ID{Role: identity.Orchestrator}, p))
		require.NoError(t, ask(), "%s", p)
		late = append(late, ask)
	}

	old := s.Credentials.TLSConfig(identity.Orchestrator)
	s.Credentials.AddCA(t.TempDir())
	s.AwaitNewKeys(2)
	load.awaitNewConnections(t)
	s.RenewCertificates(time.Hour)
	s.AwaitNewKeys(3)
	load.awaitNewConnections(t)
	s.Restart(rig.Etcd) // from now on etcd accepts only certificates of the new CA
	load.awaitNewConnections(t)
	s.gate.Open(key)
	s.requireAnsweredOnce(t, req, held())

	s.Credentials.TrustOnlyLatestCA()
	s.AwaitNewKeys(4)
	began := time.Now()
	s.Await("who has the old keys is out", func() bool {
		for _, ask := range late {
			if ask() == nil {
				return false
			}
		}
		return true
	})
	for time.Since(began) < connLifetime { // no connection is older than this
		load.awaitNewConnections(t)
	}
	for _, p := range parts {
		state, err := connectionState(s.Address(p), s.Credentials.TLSConfig(identity.Orchestrator))
		require.NoError(t, err)
		require.Equal(t, s.Credentials.Certificate(string(p)).SerialNumber, state.PeerCertificates[0].SerialNumber, "%s", p)
		_, err = connectionState(s.Address(p), old)
		require.ErrorContains(t, err, "tls", "%s", p)
	}
	s.Stores.RevokeLease("slow", program.Instance) // a worker that registers again has used its new certificate
	s.Await("it is registered again", func() bool { return s.Stores.IsRegistered("slow", program.Instance) })
	turns, conns := load.end()
	t.Logf("%d turns, %d connections of clients, in %s", turns, conns, time.Since(up))
}

// awaitAgent waits until an agent accepts steps.
func (g *gatedMesh) awaitAgent(t *testing.T, name string) {
	t.Helper()
	g.Await(name+" is ready", func() bool { return len(idleInstances(t, g.Mesh, name)) == 1 })
}

// backgroundLoad is a group of clients that send requests continuously.
type backgroundLoad struct {
	turns, conns atomic.Int64
	end          func() (turns, conns int64)
}

const (
	loadClients  = 3
	turnsPerConn = 5 // turns per connection
)

// startLoad starts the clients. The test fails if a turn fails or its stream has a gap.
func (g *gatedMesh) startLoad(t *testing.T) *backgroundLoad {
	l := &backgroundLoad{}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	dial := g.Dialer()
	for n := range loadClients {
		asking.Go(func() {
			pause := time.NewTicker(20 * time.Millisecond)
			defer pause.Stop()
			for ctx.Err() == nil {
				conn, c, err := dial()
				if err != nil {
					t.Error(err)
					return
				}
				l.conns.Add(1)
				for range turnsPerConn {
					<-pause.C
					if err := checkTurn(t.Context(), c, n); err != nil {
						t.Errorf("turn %d: %v", l.turns.Load(), err)
					}
					l.turns.Add(1)
				}
				_ = conn.Close()
			}
		})
	}
	l.end = sync.OnceValues(func() (int64, int64) { cancel(); asking.Wait(); return l.turns.Load(), l.conns.Load() })
	t.Cleanup(func() { l.end() })
	return l
}

// awaitNewConnections returns once each client has sent a request over a new connection.
func (l *backgroundLoad) awaitNewConnections(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for want := l.turns.Load() + 2*loadClients*turnsPerConn; l.turns.Load() < want; {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			return
		}
	}
}

// checkTurn runs a turn to its end. It returns an error if the turn failed or its stream had a gap.
func checkTurn(ctx context.Context, c *client.Client, n int) error {
	req := textRequest(question)
	if n > 0 {
		req.Target = "clarification"
	}
	last := uint64(0)
	var end *troupev1.TurnResult
	for e, err := range c.Turn(ctx, req) {
		if err != nil {
			return err
		}
		if seq := e.GetSequence(); seq != 0 {
			if seq != last+1 {
				return fmt.Errorf("trace %s: event %d after %d", e.GetTraceId(), seq, last)
			}
			last = seq
		}
		end = e.GetTurnResult()
	}
	if end.GetFailure() != nil || end == nil {
		return fmt.Errorf("it ended with %v", end)
	}
	return nil
}

// healthCheck returns a function that makes a health call and returns its error.
func healthCheck(t *testing.T, conn *grpc.ClientConn) func() error {
	health := healthpb.NewHealthClient(conn)
	return func() error {
		_, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	}
}

// connectionState connects as a client and returns the state of the TLS connection, which contains the server's
// certificate.
func connectionState(addr string, as *tls.Config) (*tls.ConnectionState, error) {
	as = as.Clone()
	as.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", addr, as)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err = conn.Read(make([]byte, 1)); err != nil { // the first byte of HTTP/2, or why not
		return nil, err
	}
	state := conn.ConnectionState()
	return &state, nil
}
