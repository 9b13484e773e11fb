package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const domain = "example.org"

// newCA returns a new CA for the test domain in a temporary folder.
func newCA(t testing.TB) *CA {
	t.Helper()
	ca, err := OpenCA(t.TempDir())
	require.NoError(t, err)
	ca.domain = domain
	return ca
}

// certTemplate returns a valid certificate template with the given URIs.
func certTemplate(t testing.TB, uris ...string) *x509.Certificate {
	t.Helper()
	cert := certificateTemplate("", time.Hour)
	for _, text := range uris {
		uri, err := url.Parse(text)
		require.NoError(t, err)
		cert.URIs = append(cert.URIs, uri)
	}
	return cert
}

func (ca *CA) certify(t testing.TB, cert *x509.Certificate) tls.Certificate {
	t.Helper()
	pair, err := ca.issue(cert)
	require.NoError(t, err)
	return pair
}

// writeFiles writes certificate files as an operator would, and returns the configuration that names them.
func writeFiles(t testing.TB, dir string, ca *CA, pair tls.Certificate) Config {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	cfg := Config{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	for name, text := range map[string][]byte{
		cfg.Cert: pemBlock("CERTIFICATE", pair.Certificate[0]), cfg.Key: pemBlock("PRIVATE KEY", key), cfg.CA: pemBlock("CERTIFICATE", ca.cert.Raw),
	} {
		require.NoError(t, os.WriteFile(name, text, 0o600))
	}
	return cfg
}

// openSource writes the files of a process of the CA's mesh and opens its identity from them.
func openSource(t testing.TB, ca *CA, role Role, agent string, log *zap.Logger) *Source {
	t.Helper()
	id := ID{domain, role, agent}
	s, err := Open(writeFiles(t, t.TempDir(), ca, ca.certify(t, certTemplate(t, id.String()))), role, agent, log)
	require.NoError(t, err)
	return s
}

// newWarningLog returns a logger, and a function that waits for the next warning logged to it.
func newWarningLog(t *testing.T) (_ *zap.Logger, next func() map[string]any) {
	t.Helper()
	core, logs := observer.New(zapcore.WarnLevel)
	came := make(chan struct{}, 100)
	read := 0
	return zap.New(core, zap.Hooks(func(zapcore.Entry) error { came <- struct{}{}; return nil })), func() map[string]any {
		t.Helper()
		select {
		case <-came:
		case <-time.After(time.Minute):
			require.FailNow(t, "no warning was logged")
		}
		read++
		entry := logs.All()[read-1]
		fields := entry.ContextMap()
		fields["message"] = entry.Message
		return fields
	}
}

// fakeHealth is a health service that passes the identity of each caller to called.
type fakeHealth struct {
	healthpb.UnimplementedHealthServer
	called func(ID, bool)
}

func (h *fakeHealth) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	h.called(CallerFromContext(ctx))
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// serveWith runs a gRPC server with the credentials until the test ends.
func serveWith(t testing.TB, creds credentials.TransportCredentials, called func(ID, bool)) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(creds))
	healthpb.RegisterHealthServer(server, &fakeHealth{called: called})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-ended) })
	return lis.Addr().String()
}

// callOnce makes one call over a new connection and returns its error.
func callOnce(t testing.TB, creds credentials.TransportCredentials, address string) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	return err
}
