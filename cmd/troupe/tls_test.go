package main

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/clitest"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/process"
)

// A user who trusts the wrong CA sees the TLS error without internal details of gRPC.
func TestServer_ExplainsTLSErrors(t *testing.T) {
	files := func() identity.Config {
		ca, err := identity.OpenCA(t.TempDir())
		require.NoError(t, err)
		made, err := ca.WriteFiles(identity.Orchestrator, "")
		require.NoError(t, err)
		return made
	}
	ours, theirs := files(), files()
	creds, err := credentials.NewServerTLSFromFile(theirs.Cert, theirs.Key)
	require.NoError(t, err)
	secret := grpc.NewServer(grpc.Creds(creds))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- secret.Serve(lis) }()
	defer func() { secret.Stop(); require.NoError(t, <-ended) }()
	for addr, why := range map[string]string{
		lis.Addr().String(): "tls: failed to verify certificate: x509: certificate signed by unknown authority",
		clitest.Serve(t, func(grpc.ServiceRegistrar) {}): "tls: first record does not look like a TLS handshake",
	} {
		var told bytes.Buffer
		code := run(t.Context(), []string{"get", "agents", "--addr", addr, "--tls-ca", ours.CA}, console.Terminal{Out: &told, Err: &told})
		require.Equal(t, process.ExitError, code)
		require.Contains(t, told.String(), "troupe: the mesh at "+addr+" cannot be trusted by --tls-ca "+ours.CA+", or speaks plain text: "+why)
		require.NotContains(t, told.String(), "rpc error")
		require.NotContains(t, told.String(), `\"`)

		// Because the TLS handshake failed, no turn can have started, and the command does not wait for one.
		began := time.Now()
		told.Reset()
		require.Equal(t, process.ExitError, run(t.Context(), []string{"ask", "--addr", addr, "--tls-ca", ours.CA, "hello"}, console.Terminal{
			Out: &told,
			Err: &told,
		}))
		require.Contains(t, told.String(), "troupe: the mesh at "+addr+" cannot be trusted by --tls-ca "+ours.CA+", or speaks plain text: "+why)
		require.NotContains(t, told.String(), "may have begun")
		require.Less(t, time.Since(began), 2*time.Second)
	}
}
