package redisconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/loopback"
	"github.com/troupe-dev/troupe/test/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority is a test CA that writes the certificates it signs to files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: filepath.Base(filepath.Dir(a.dir)) + filepath.Base(a.dir)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour),
	}
	a.sign(t, "ca", a.cert)
	return a
}

// file returns the path of a PEM file: ca, server or client, with the suffix .pem or .key.
func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// sign writes name.pem and name.key. The first certificate that it signs is the CA's own.
func (a *authority) sign(t *testing.T, name string, cert *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	if a.key == nil {
		a.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for suffix, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(a.file(name+suffix), pem.EncodeToMemory(block), 0o600))
	}
}

func (a *authority) leaf(t *testing.T, name string) {
	t.Helper()
	a.sign(t, name, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// startRedisWithTLS runs a Redis that requires a certificate and a password, and returns its URL.
func startRedisWithTLS(t *testing.T, a *authority) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := lis.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	redistest.StartServer(t, "--tls-port", port, "--tls-cert-file", a.file("server.pem"), "--tls-key-file", a.file("server.key"),
		"--tls-ca-cert-file", a.file("ca.pem"), "--tls-auth-clients", "yes", "--requirepass", "hunter2")
	return "rediss://default@" + addr + "/0"
}

func TestConn_UsesTLSWithACertificateAndAPassword(t *testing.T) {
	a := newAuthority(t)
	a.leaf(t, "server")
	a.leaf(t, "client")
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("hunter2\n"), 0o600))
	url := startRedisWithTLS(t, a)
	good := Security{CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client.key"), PasswordFile: secret}

	ask := func(s Security) error {
		conn, err := New(Config{URL: url, Security: s})
		require.NoError(t, err)
		defer conn.Close()
		return conn.CheckServing(t.Context(), Permissions{Prefix: "m:"})
	}
	require.NoError(t, ask(good))

	none := good
	none.Cert, none.Key = "", ""
	require.Error(t, ask(none), "without a certificate")
	system := good
	system.CA = ""
	require.ErrorContains(t, ask(system), "certificate signed by unknown authority")
	other := newAuthority(t)
	other.leaf(t, "client")
	stranger := good
	stranger.Cert, stranger.Key = other.file("client.pem"), other.file("client.key")
	require.Error(t, ask(stranger), "with a certificate of another authority")
	wrong := good
	wrong.PasswordFile = filepath.Join(t.TempDir(), "wrong")
	require.NoError(t, os.WriteFile(wrong.PasswordFile, []byte("hunter3"), 0o600))
	err := ask(wrong)
	require.ErrorContains(t, err, "does not accept the credentials")
	require.NotContains(t, err.Error(), "hunter3")
}

// The certificates of the mesh work for Redis as well. Redis requires a client certificate of the same CA, and the
// user and password decide what the client may do. Redis's own certificate names its host and no process of the
// mesh. A worker has a certificate but no password, so Redis permits it nothing.
func TestConn_UsesTLSWithTheCertificatesOfTheMesh(t *testing.T) {
	ca, err := identity.OpenCA(t.TempDir())
	require.NoError(t, err)
	server, err := ca.WriteServerFiles(t.TempDir(), "redis")
	require.NoError(t, err)
	port := loopback.Address(t)[len("127.0.0.1:"):]
	redistest.StartGuarded(t, "--tls-port", port, "--tls-cert-file", server.Cert, "--tls-key-file", server.Key,
		"--tls-ca-cert-file", server.CA, "--tls-auth-clients", "yes")
	ask := func(user string, role identity.Role, agent string) error {
		files, err := ca.WriteFiles(role, agent)
		require.NoError(t, err)
		conn, err := New(Config{
			URL: "rediss://" + user + "127.0.0.1:" + port + "/0", Security: Security{CA: files.CA, Cert: files.Cert, Key: files.Key},
		})
		require.NoError(t, err)
		defer conn.Close()
		return conn.CheckServing(t.Context(), Permissions{Prefix: "m:"})
	}
	require.NoError(t, ask("memory:memory@", identity.Memory, ""))
	require.ErrorContains(t, ask("", identity.Worker, "research"), "NOAUTH")
	require.ErrorContains(t, ask("memory@", identity.Worker, "research"), "NOAUTH")
	require.ErrorContains(t, ask("memory:guess@", identity.Worker, "research"), "does not accept the credentials")
}

// When files are replaced, the next connection uses the new ones.
func TestConn_RereadsCertificateAndPassword(t *testing.T) {
	a := newAuthority(t)
	a.leaf(t, "server")
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("wrong"), 0o600))
	a.leaf(t, "client")
	conn, err := New(Config{URL: startRedisWithTLS(t, a), Security: Security{
		CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client.key"), PasswordFile: secret,
	}})
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, failure.Unknown, failure.ModeOf(conn.CheckServing(t.Context(), Permissions{Prefix: "m:"})))
	require.NoError(t, os.WriteFile(secret, []byte("hunter2"), 0o600))
	a.leaf(t, "client")
	require.NoError(t, conn.CheckServing(t.Context(), Permissions{Prefix: "m:"}))
}

// While the CA is replaced as docs/operate.md describes, every new connection succeeds.
func TestConn_WorksDuringAReplacementOfTheCA(t *testing.T) {
	was, now := newAuthority(t), newAuthority(t)
	for _, a := range []*authority{was, now} {
		a.leaf(t, "server")
		a.leaf(t, "client")
	}
	read := func(of *authority, name string) []byte {
		text, err := os.ReadFile(of.file(name))
		require.NoError(t, err)
		return text
	}
	oldCA, newCA := read(was, "ca.pem"), read(now, "ca.pem")
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("hunter2"), 0o600))
	conn := connect(t, Config{URL: startRedisWithTLS(t, was), Security: Security{
		CA: was.file("ca.pem"), Cert: was.file("client.pem"), Key: was.file("client.key"), PasswordFile: secret,
	}})
	tell := func(settings ...any) {
		require.NoError(t, conn.Do(t.Context(), append([]any{"CONFIG", "SET"}, settings...)...).Err())
	}
	anew := func() error { // uses a new connection, because all existing ones are in use
		held := conn.UniversalClient.(*redis.Client).Conn()
		require.NoError(t, held.Ping(t.Context()).Err())
		t.Cleanup(func() { require.NoError(t, held.Close()) })
		return conn.CheckServing(t.Context(), Permissions{Prefix: "m:"})
	}
	require.NoError(t, conn.CheckServing(t.Context(), Permissions{Prefix: "m:"}))
	require.NoError(t, anew())

	require.NoError(t, os.WriteFile(was.file("ca.pem"), slices.Concat(oldCA, newCA), 0o600))
	tell("tls-ca-cert-file", was.file("ca.pem"))
	require.NoError(t, anew(), "both are good")

	for _, name := range []string{"server.pem", "server.key", "client.pem", "client.key"} {
		require.NoError(t, os.WriteFile(was.file(name), read(now, name), 0o600))
	}
	require.NoError(t, anew(), "clients are new")
	tell("tls-cert-file", was.file("server.pem"), "tls-key-file", was.file("server.key")) // the certificate and the key belong together
	require.NoError(t, anew(), "all are new")

	require.NoError(t, os.WriteFile(was.file("ca.pem"), newCA, 0o600))
	tell("tls-ca-cert-file", was.file("ca.pem"))
	require.NoError(t, anew(), "the old certificate is rejected")

	require.NoError(t, os.WriteFile(was.file("ca.pem"), oldCA, 0o600))
	require.ErrorContains(t, anew(), "certificate signed by unknown authority")
}

// A failed connection attempt is reported as unsent, never as a write that may have happened.
func TestConn_ReportsUnsentCommands(t *testing.T) {
	a := newAuthority(t)
	a.leaf(t, "server")
	a.leaf(t, "client")
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("hunter2"), 0o600))
	good := Security{CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client.key"), PasswordFile: secret}
	uncertified, gone := good, good
	uncertified.Cert, uncertified.Key = "", ""
	gone.PasswordFile = filepath.Join(t.TempDir(), "gone")
	url := startRedisWithTLS(t, a)
	for name, cfg := range map[string]Config{
		"no server":      {URL: "redis://" + loopback.Address(t)},
		"other CA":       {URL: url, Security: Security{PasswordFile: secret}},
		"no certificate": {URL: url, Security: uncertified},
		"no password":    {URL: url, Security: gone},
	} {
		require.NoError(t, os.WriteFile(gone.PasswordFile, []byte("hunter2"), 0o600))
		conn := connect(t, cfg)
		require.NoError(t, os.Remove(gone.PasswordFile))
		err := conn.Failure("test", conn.Set(t.Context(), "k", "v", 0).Err())
		require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "%s: %v", name, err)
		require.Equal(t, "no connection to the store can be made; try again", failure.PlainMessage(err), "%s: %v", name, err)
	}
}

func TestNew_ReportsInvalidFiles(t *testing.T) {
	a := newAuthority(t)
	a.leaf(t, "client")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for want, cfg := range map[string]Config{
		"begin it with rediss://":                       {URL: "redis://localhost", Security: Security{CA: a.file("ca.pem")}},
		"--redis-ca: open":                              {URL: "rediss://localhost", Security: Security{CA: a.file("none.pem")}},
		"--redis-password-file: open":                   {URL: "redis://localhost", Security: Security{PasswordFile: a.file("none")}},
		"--redis-password-file: " + empty + " is empty": {URL: "redis://localhost?addr=other:6379", Security: Security{PasswordFile: empty}},
		"holds no PEM certificate":                      {URL: "rediss://localhost", Security: Security{CA: a.file("ca.key")}},
		"give both":                                     {URL: "rediss://localhost", Security: Security{Cert: a.file("client.pem")}},
		"private key does not match": {URL: "rediss://localhost?addr=other:6379", Security: Security{
			Cert: a.file("client.pem"),
			Key:  a.file("ca.key"),
		}},
	} {
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
	}
}
