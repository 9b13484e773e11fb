package client_test

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// newCertificateFiles creates a CA and a server certificate that it signs, and returns their files.
func newCertificateFiles(t *testing.T) identity.TLSFiles {
	t.Helper()
	ca, err := identity.OpenCA(t.TempDir())
	require.NoError(t, err)
	f, err := ca.WriteServerFiles(t.TempDir(), "mesh")
	require.NoError(t, err)
	return f
}

// When either side rejects a certificate, or the server has no TLS, the client fails at once. It sends no request,
// because a retry would fail too.
func TestTurn_FailsAtOnceOnRejectedCertificate(t *testing.T) {
	ours, theirs := newCertificateFiles(t), newCertificateFiles(t)
	edge, err := identity.EdgeConfig{Cert: theirs.Cert, Key: theirs.Key, CA: theirs.CA}.Open(zap.NewNop())
	require.NoError(t, err)
	for name, trust := range map[string]identity.ClientTLS{
		"the client rejects the server": {CA: ours.CA, Cert: theirs.Cert, Key: theirs.Key},
		"the server rejects the client": {CA: theirs.CA, Cert: ours.Cert, Key: ours.Key},
		"the server has no TLS":         {CA: ours.CA},
	} {
		t.Run(name, func(t *testing.T) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var options []grpc.ServerOption
			if name != "the server has no TLS" {
				options = append(options, grpc.Creds(edge.Credentials()))
			}
			server := grpc.NewServer(options...)
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(lis) }()
			defer func() { server.Stop(); require.NoError(t, <-ended) }()
			creds, err := trust.Credentials()
			require.NoError(t, err)
			conn, err := rpc.DialWith(creds, lis.Addr().String(), telemetry.Discard())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			_, err = collectEvents(client.New(conn).Turn(t.Context(), newRequest()))
			require.Equal(t, failure.PolicySecurity, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, "tls: ")
		})
	}
}

// When the client rejects the server's certificate only after a request, it retries, because a turn may have
// begun.
func TestTurn_RetriesWhenCertificateIsRejectedLater(t *testing.T) {
	ours, theirs := newCertificateFiles(t), newCertificateFiles(t)
	var shown atomic.Pointer[identity.TLSFiles]
	shown.Store(&ours)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := &cutListener{Listener: lis}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(shown.Load().Cert, shown.Load().Key)
			return &pair, err
		},
	})))
	troupev1.RegisterOrchestratorServiceServer(server, &fakeOrchestrator{listener: accepted, script: func(int) (int, error) {
		shown.Store(&theirs)
		return 0, errCut
	}})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(accepted) }()
	defer func() { server.Stop(); require.NoError(t, <-ended) }()
	creds, err := identity.ClientTLS{CA: ours.CA}.Credentials()
	require.NoError(t, err)
	conn, err := rpc.DialWith(creds, lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	c := client.New(conn)
	c.SetPatience(shortPatience)
	_, err = collectEvents(c.Turn(t.Context(), newRequest()))
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "%v", err)
}
