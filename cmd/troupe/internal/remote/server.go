// Package remote connects commands to a mesh. It contains the flags for the address and the credentials, the
// connection, single calls, and errors in terms of the command line.
package remote

import (
	"cmp"
	"os"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Server holds the flags for the address of the orchestrator and for connecting to it.
type Server struct {
	Addr string `help:"Address of the orchestrator." default:"127.0.0.1:7400" env:"TROUPE_ADDR"`

	TLS   identity.ClientTLS `embed:""`
	Token bearer.TokenConfig `embed:""`
}

// defaultAddr is the address at which `troupe dev` serves.
const defaultAddr = "127.0.0.1:7400"

// Dial connects to the orchestrator. The caller closes the connection.
func (s Server) Dial() (*client.Client, *grpc.ClientConn, error) {
	if err := CheckAddress("addr", s.Addr); err != nil {
		return nil, nil, err
	}
	creds, err := s.TLS.Credentials()
	if err != nil {
		return nil, nil, failure.New(failure.UserInvalidInput, "troupe", err.Error())
	}
	token, err := s.Token.Credentials(s.Addr, s.TLS != (identity.ClientTLS{}))
	if err != nil {
		return nil, nil, failure.New(failure.UserInvalidInput, "troupe", err.Error())
	}
	conn, err := rpc.DialWith(creds, s.Addr, telemetry.Discard())
	if err != nil {
		return nil, nil, err
	}
	return client.New(client.WithCredentials(conn, token)), conn, nil
}

// Flags returns the flags with which another command in the same shell reaches the same orchestrator.
func (s Server) Flags() string {
	text := ""
	if s.Addr != "" && s.Addr != cmp.Or(os.Getenv("TROUPE_ADDR"), defaultAddr) {
		text = " --addr " + console.QuoteForShell(s.Addr)
	}
	for _, f := range []struct{ flag, value, variable string }{
		{"--tls-ca", s.TLS.CA, "TROUPE_ADDR_TLS_CA"},
		{"--tls-cert", s.TLS.Cert, "TROUPE_ADDR_TLS_CERT"},
		{"--tls-key", s.TLS.Key, "TROUPE_ADDR_TLS_KEY"},
		{"--token-file", s.Token.File, "TROUPE_TOKEN_FILE"},
	} {
		if f.value != os.Getenv(f.variable) {
			text += " " + f.flag + " " + console.QuoteForShell(f.value)
		}
	}
	return text
}
