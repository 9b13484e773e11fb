package rig

import (
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
)

// Dialer makes connections to the orchestrator, and clients that send the token of the test if one is required.
// Each trusts the CAs that were current when it was made. The caller closes it. It is safe for concurrent use.
func (m *Mesh) Dialer() func() (*grpc.ClientConn, *client.Client, error) {
	var trust identity.Trust
	var shown bearer.Token
	if m.keys != nil {
		trust.CA = m.file("ca", "crt")
	}
	if m.tokens != "" {
		shown.File = m.tokenFile("token")
	}
	addr := m.grpcAddr(Orchestrator)
	return func() (*grpc.ClientConn, *client.Client, error) {
		creds, err := trust.Credentials()
		if err != nil {
			return nil, nil, err
		}
		conn, err := rpc.DialWith(creds, addr, telemetry.Discard())
		if err != nil || shown.File == "" {
			return conn, client.New(conn), err
		}
		as, err := shown.Credentials(addr, m.keys != nil)
		return conn, client.New(client.Signed(conn, as)), err
	}
}

// DialAs connects to the memory service or a worker with the identity as. It shows what a compromised process
// of the mesh could do.
func (m *Mesh) DialAs(as identity.ID, p Part, to identity.ID) *grpc.ClientConn {
	m.t.Helper()
	conn, err := rpc.DialWith(m.Identity(as).Client(to.Role, to.Name), m.grpcAddr(p), telemetry.Discard())
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, conn.Close()) })
	return conn
}

// Identity is what a process has that proves to be as: to connect with, and to sign.
func (m *Mesh) Identity(as identity.ID) *identity.Source {
	m.t.Helper()
	self, err := identity.Open(m.identity(), as.Role, as.Name, zap.NewNop())
	require.NoError(m.t, err)
	return self
}

// EtcdAs is a client of the etcd of the mesh, of a user such as worker/research.
func (m *Mesh) EtcdAs(user string) *clientv3.Client { m.t.Helper(); return m.etcd.As(user) }

// token makes the token of the test, an admin's, and the file by which the orchestrator knows it.
func (m *Mesh) token() {
	m.t.Helper()
	text, entry := token.New(token.Entry{Name: "test", Tenant: identity.DefaultTenant, Role: identity.Admin})
	list, err := token.Format(entry)
	require.NoError(m.t, err)
	m.tokens = m.t.TempDir()
	require.NoError(m.t, os.WriteFile(m.tokenFile("tokens.yaml"), list, 0o600))
	require.NoError(m.t, os.WriteFile(m.tokenFile("token"), []byte(text.Reveal()), 0o600))
}

// Token is what the client of the mesh shows, when it is asked for a token.
func (m *Mesh) Token() string {
	m.t.Helper()
	text, err := os.ReadFile(m.tokenFile("token"))
	require.NoError(m.t, err)
	return string(text)
}

func (m *Mesh) tokenFile(name string) string { return filepath.Join(m.tokens, name) }
