package rig

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// AwaitKeys returns once each service that runs has taken new keys so many times since its start,
// and says so in its log. They look for them when they are asked how long theirs last. Only for
// binaries.
func (m *Mesh) AwaitKeys(times int) {
	m.t.Helper()
	m.Await("all have the new keys", func() bool {
		for p, s := range m.running {
			if !strings.Contains(m.get(p, "/metrics"), "troupe_certificate_remaining_seconds{") {
				return false
			}
			said, err := os.ReadFile(s.(*child).log)
			require.NoError(m.t, err)
			if strings.Count(string(said), `"message":"new keys"`) < times {
				return false
			}
		}
		return true
	})
}

// get is what the HTTP port of a part answers.
func (m *Mesh) get(p Part, path string) string {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+m.httpAddr(p)+path, http.NoBody)
	require.NoError(m.t, err)
	resp, err := probes.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// Address is the gRPC address of a part.
func (m *Mesh) Address(p Part) string { return m.grpcAddr(p) }

// Reach is a connection to a part inside the mesh with the role as. For a worker, agent is its name, or the
// name of the caller if that is a worker.
func (m *Mesh) Reach(p Part, as identity.Role, agent string) *grpc.ClientConn {
	m.t.Helper()
	name := agent
	if as != identity.Worker {
		name = ""
	}
	self, err := identity.Open(m.identity(), as, name, zap.NewNop())
	require.NoError(m.t, err)
	creds := self.Client(identity.Memory, "")
	if p != Memory {
		creds = self.Client(identity.Worker, agent)
	}
	conn, err := rpc.DialWith(creds, m.grpcAddr(p), telemetry.Discard())
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, conn.Close()) })
	return conn
}

// TLS is how a process of the role connects inside the mesh, for those that speak to a port by
// hand. It does not look at who answers.
func (m *Mesh) TLS(as identity.Role) *tls.Config {
	m.t.Helper()
	ca, err := identity.OpenCA(m.devCA)
	require.NoError(m.t, err)
	files, err := ca.Files(as, "")
	require.NoError(m.t, err)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	require.NoError(m.t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
}
