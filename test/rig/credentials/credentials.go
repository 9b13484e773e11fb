// Package credentials makes the credentials of a mesh under test: certificates that say which process is
// which, and the token of the test's client.
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

// Config says which credentials a mesh has.
type Config struct {
	None  bool // processes have no certificates
	Files bool // processes have certificates in files, as in production, and not from a CA for development
	Token bool // clients need a token
}

// Credentials are the credentials of one mesh. The methods fail the test when they cannot do what they
// say.
type Credentials struct {
	// DevCA is the folder of the current CA (empty means that there is none).
	DevCA string

	t      testing.TB
	files  *files // of certificates (nil without Config.Files)
	tokens string // folder of the client's token (empty means that clients need none)
}

// New makes the credentials of a mesh.
func New(t testing.TB, cfg Config) *Credentials {
	t.Helper()
	c := &Credentials{t: t}
	if !cfg.None {
		c.DevCA = t.TempDir()
	}
	if cfg.Files {
		c.files = &files{dir: t.TempDir()}
		c.TrustAlso(c.DevCA)
	}
	if cfg.Token {
		c.makeToken()
	}
	return c
}

// makeToken makes the token of the test's client, an admin, and the list of tokens for the orchestrator.
func (c *Credentials) makeToken() {
	c.t.Helper()
	text, entry := token.New(token.Entry{Name: "test", Tenant: identity.DefaultTenant, Role: identity.Admin})
	list, err := token.Format(entry)
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

// Client returns the settings of the client port: its own certificate, if it has one, and how it checks
// tokens.
func (c *Credentials) Client() (edge identity.Edge, tokens bearer.Config) {
	if c.files != nil {
		edge = identity.Edge{Cert: c.files.path(Edge, "crt"), Key: c.files.path(Edge, "key")}
	}
	if c.tokens != "" {
		tokens.Tokens = c.tokenFile("tokens.yaml")
	}
	return edge, tokens
}

// Dialer returns a function that connects to the orchestrator at an address, with a client that sends the
// token of the test if one is required. Each connection trusts the CAs that are current when it is made.
// The caller closes it. The function is safe for concurrent use.
func (c *Credentials) Dialer(addr string) func() (*grpc.ClientConn, *client.Client, error) {
	var trust identity.ClientTLS
	var sent bearer.Token
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

// Process returns the configuration from which a process loads its identity. The certificate was issued under
// the given name.
func (c *Credentials) Process(name string) identity.Config {
	if c.files == nil {
		return identity.Config{DevCA: c.DevCA}
	}
	return identity.Config{
		Cert: c.files.path(name, "crt"), Key: c.files.path(name, "key"), CA: c.files.path(caFile, "crt"),
	}
}

// Identity returns the identity of any process of the mesh, to connect with and to sign with. With it a
// test acts as a compromised process.
func (c *Credentials) Identity(id identity.ID) *identity.Source {
	c.t.Helper()
	self, err := identity.Open(identity.Config{DevCA: c.DevCA}, id.Role, id.Name, zap.NewNop())
	require.NoError(c.t, err)
	return self
}

// TLS returns the configuration of a process of the role, for tests that speak to a port without gRPC. It
// does not verify the server.
func (c *Credentials) TLS(role identity.Role) *tls.Config {
	c.t.Helper()
	ca, err := identity.OpenCA(c.DevCA)
	require.NoError(c.t, err)
	issued, err := ca.WriteFiles(role, "")
	require.NoError(c.t, err)
	pair, err := tls.LoadX509KeyPair(issued.Cert, issued.Key)
	require.NoError(c.t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
}
