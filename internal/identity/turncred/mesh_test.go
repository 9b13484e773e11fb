package turncred

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
)

// testMesh is a CA that issues certificates for the processes of one trust domain.
type testMesh struct {
	domain string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newMesh(t testing.TB, domain string) *testMesh {
	t.Helper()
	m := &testMesh{domain: domain}
	var err error
	m.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := certTemplate(time.Now().Add(-time.Hour), 24*time.Hour, "spiffe://"+domain)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, m.key.Public(), m.key)
	require.NoError(t, err)
	m.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return m
}

func certTemplate(from time.Time, life time.Duration, id string) *x509.Certificate {
	uri, err := url.Parse(id)
	if err != nil {
		return nil
	}
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: from, NotAfter: from.Add(life), URIs: []*url.URL{uri}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// writeFiles writes a certificate with its key and CA into a folder, in the form that a process reads.
func (m *testMesh) writeFiles(t testing.TB, dir string, key crypto.Signer, path string, from time.Time, life time.Duration) identity.Config {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, certTemplate(from, life, "spiffe://"+m.domain+path), m.cert, key.Public(), m.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cfg := identity.Config{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	for file, block := range map[string]*pem.Block{
		cfg.Cert: {Type: "CERTIFICATE", Bytes: der}, cfg.Key: {Type: "PRIVATE KEY", Bytes: private}, cfg.CA: {Type: "CERTIFICATE", Bytes: m.cert.Raw},
	} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return cfg
}

func newECKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// authority returns the Authority of a process in the mesh.
func (m *testMesh) authority(t testing.TB, role identity.Role, agent string, key crypto.Signer) *Authority {
	t.Helper()
	path := "/" + string(role)
	if agent != "" {
		path += "/" + agent
	}
	s, err := identity.Open(m.writeFiles(t, t.TempDir(), key, path, time.Now().Add(-time.Minute), time.Hour), role, agent, zap.NewNop())
	require.NoError(t, err)
	return New(s)
}

func (m *testMesh) orchestrator(t testing.TB) *Authority {
	return m.authority(t, identity.Orchestrator, "", newECKey(t))
}

func (m *testMesh) memory(t testing.TB) *Authority {
	return m.authority(t, identity.Memory, "", newECKey(t))
}

// testTurn returns the turn for which the tests issue credentials.
func testTurn() Turn {
	return Turn{
		Agent: "research", Tenant: "acme", Session: "s-1", ID: "t-1", User: "ann@example.org", Trace: "0af7651916cd43dd8448eb211c80319c", Epoch: 7,
		Step: 2,
	}
}
