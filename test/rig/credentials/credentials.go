// Package credentials creates the credentials of a mesh under test: certificates that identify the processes, and
// the token of the test's client.
package credentials

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
)

// Config selects the credentials of a mesh.
type Config struct {
	NoCertificates   bool // processes have no certificates
	CertificateFiles bool // processes have certificates in files, as in production, and not from a CA for development
	RequireToken     bool // clients need a token
}

// Credentials holds the credentials of one mesh. Its methods fail the test on errors.
type Credentials struct {
	// DevCA is the folder of the current development CA (empty means that there is none).
	DevCA string

	t      testing.TB
	files  *certificateFolder // folder of certificates (nil without Config.CertificateFiles)
	tokens string             // folder of the client's token (empty means that clients need none)
}

// New creates the credentials of a mesh.
func New(t testing.TB, cfg Config) *Credentials {
	t.Helper()
	c := &Credentials{t: t}
	if !cfg.NoCertificates {
		c.DevCA = t.TempDir()
	}
	if cfg.CertificateFiles {
		c.files = &certificateFolder{dir: t.TempDir()}
		c.AddCA(c.DevCA)
	}
	if cfg.RequireToken {
		c.makeToken()
	}
	return c
}

// makeToken creates the token of the test's client, who is an admin, and the orchestrator's list of tokens.
func (c *Credentials) makeToken() {
	c.t.Helper()
	text, entry := token.New(token.Entry{Name: "test", Tenant: identity.DefaultTenant, Role: identity.Admin})
	list, err := token.FormatFile(entry)
	require.NoError(c.t, err)
	c.tokens = c.t.TempDir()
	require.NoError(c.t, os.WriteFile(c.tokenFile("tokens.yaml"), list, 0o600))
	require.NoError(c.t, os.WriteFile(c.tokenFile("token"), []byte(text.Reveal()), 0o600))
}

// Token returns the token of the test's client.
func (c *Credentials) Token() string {
	c.t.Helper()
	text, err := os.ReadFile(c.tokenFile("token"))
	require.NoError(c.t, err)
	return string(text)
}

func (c *Credentials) tokenFile(name string) string { return filepath.Join(c.tokens, name) }

// ClientPortConfig returns the settings of the client port: its certificate, if it has one, and the file of
// accepted tokens.
func (c *Credentials) ClientPortConfig() (edge identity.EdgeConfig, tokens bearer.Config) {
	if c.files != nil {
		edge = identity.EdgeConfig{Cert: c.files.path(Edge, "crt"), Key: c.files.path(Edge, "key")}
	}
	if c.tokens != "" {
		tokens.Tokens = c.tokenFile("tokens.yaml")
	}
	return edge, tokens
}

// Dialer returns a function that connects to the orchestrator at an address. The client sends the token of the
// test if tokens are required. Each connection trusts the CAs that are current when it is made. The caller closes
// it. The function is safe for concurrent use.
func (c *Credentials) Dialer(addr string) func() (*grpc.ClientConn, *client.Client, error) {
	var trust identity.ClientTLS
	var sent bearer.TokenConfig
	if c.files != nil {
		trust.CA = c.files.path(caFile, "crt")
	}
	if c.tokens != "" {
		sent.File = c.tokenFile("token")
	}
	return func() (*grpc.ClientConn, *client.Client, error) {
		creds, err := trust.Credentials()
		if err != nil {
			return nil, nil, err
		}
		conn, err := rpc.DialWith(creds, addr, telemetry.Discard())
		if err != nil || sent.File == "" {
			return conn, client.New(conn), err
		}
		as, err := sent.Credentials(addr, c.files != nil)
		return conn, client.New(client.WithCredentials(conn, as)), err
	}
}

// ProcessConfig returns the configuration from which a process loads its identity. The certificate must have been
// issued under the given name.
func (c *Credentials) ProcessConfig(name string) identity.Config {
	if c.files == nil {
		return identity.Config{DevCA: c.DevCA}
	}
	return identity.Config{
		Cert: c.files.path(name, "crt"), Key: c.files.path(name, "key"), CA: c.files.path(caFile, "crt"),
	}
}

// Identity returns the identity of any process of the mesh, for connections and for signatures. A test uses it to
// act as a compromised process.
func (c *Credentials) Identity(id identity.ID) *identity.Source {
	c.t.Helper()
	self, err := identity.Open(identity.Config{DevCA: c.DevCA}, id.Role, id.Name, zap.NewNop())
	require.NoError(c.t, err)
	return self
}

// TLSConfig returns the TLS configuration of a process with the role, for tests that use a port without gRPC. It
// does not verify the server.
func (c *Credentials) TLSConfig(role identity.Role) *tls.Config {
	c.t.Helper()
	ca, err := identity.OpenCA(c.DevCA)
	require.NoError(c.t, err)
	issued, err := ca.WriteFiles(role, "")
	require.NoError(c.t, err)
	pair, err := tls.LoadX509KeyPair(issued.Cert, issued.Key)
	require.NoError(c.t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
}
