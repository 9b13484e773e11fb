package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
)

// edge is the certificate that clients see. Its process has another one for the mesh.
const edge Part = "edge"

// keys are those of a mesh whose processes have theirs from files, as in production. Each file is
// replaced as a whole; a certificate and its key are not one file.
type keys struct {
	dir     string
	ca      tls.Certificate // from which new ones come
	trusted []byte          // by all, in PEM
}

// keep makes the folder, with the CA of the mesh.
func (m *Mesh) keep() {
	m.t.Helper()
	m.keys = &keys{dir: m.t.TempDir()}
	m.TrustToo(m.devCA)
	m.issue(edge, m.cfg.Keys)
}

// TrustToo has all trust another CA for development beside the one before. New certificates are
// its own, from Renew on.
func (m *Mesh) TrustToo(devCA string) {
	m.t.Helper()
	_, err := identity.OpenCA(devCA)
	require.NoError(m.t, err)
	files, err := filepath.Glob(filepath.Join(devCA, "*.pem"))
	require.NoError(m.t, err)
	require.Len(m.t, files, 1)
	ca, err := tls.LoadX509KeyPair(files[0], files[0])
	require.NoError(m.t, err)
	m.devCA, m.keys.ca = devCA, ca
	m.keys.trusted = append(m.keys.trusted, inPEM("CERTIFICATE", ca.Leaf.Raw)...)
	m.replace("ca.crt", m.keys.trusted)
}

// TrustLatest makes all parts trust only the latest CA.
func (m *Mesh) TrustLatest() {
	m.t.Helper()
	m.keys.trusted = inPEM("CERTIFICATE", m.keys.ca.Leaf.Raw)
	m.replace("ca.crt", m.keys.trusted)
}

// Renew gives every process that runs a certificate of the latest CA, and so it does the port for
// clients. From its next start on etcd is of that CA, too, and takes those of no other: it reads
// its own when it starts.
func (m *Mesh) Renew(life time.Duration) {
	m.t.Helper()
	for p := range m.running {
		m.issue(p, life)
	}
	m.issue(edge, life)
	m.etcd.Renew(m.devCA)
}

// Certificate is the one that a part has now.
func (m *Mesh) Certificate(p Part) *x509.Certificate {
	m.t.Helper()
	pair, err := tls.LoadX509KeyPair(m.file(p, "crt"), m.file(p, "key"))
	require.NoError(m.t, err)
	return pair.Leaf
}

// issue makes the certificate of a part.
func (m *Mesh) issue(p Part, life time.Duration) {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(m.t, err)
	cert := &x509.Certificate{
		Subject: pkix.Name{CommonName: string(p)}, SerialNumber: new(big.Int).SetBytes([]byte(rand.Text()[:16])),
		NotBefore: time.Now().Add(-time.Second), NotAfter: time.Now().Add(life - time.Second),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if p != edge {
		id := m.idOf(p)
		uri, err := url.Parse(id.String())
		require.NoError(m.t, err)
		cert.Subject.CommonName, cert.URIs = id.User(), []*url.URL{uri}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, m.keys.ca.Leaf, key.Public(), m.keys.ca.PrivateKey)
	require.NoError(m.t, err)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(m.t, err)
	m.replace(filepath.Base(m.file(p, "crt")), inPEM("CERTIFICATE", der))
	m.replace(filepath.Base(m.file(p, "key")), inPEM("PRIVATE KEY", text))
}

// idOf is who a part is.
func (m *Mesh) idOf(p Part) identity.ID {
	id := identity.ID{TrustDomain: m.keys.ca.Leaf.URIs[0].Host, Role: identity.Role(p)}
	if brought, ok := m.programs[p]; ok {
		id.Role, id.Name = identity.Worker, brought.Agent
	} else if p != Memory && p != Orchestrator {
		_, id.Name, _ = strings.Cut(strings.TrimSuffix(string(p), " second"), " ")
		id.Role = identity.Worker
	}
	return id
}

// identityOf is where a part finds its own.
func (m *Mesh) identityOf(p Part) identity.Config {
	if m.keys == nil {
		return m.identity()
	}
	return identity.Config{Cert: m.file(p, "crt"), Key: m.file(p, "key"), CA: m.file("ca", "crt")}
}

// edge is what the port for clients shows.
func (m *Mesh) edge() (e identity.Edge, clients bearer.Config) {
	if m.keys != nil {
		e = identity.Edge{Cert: m.file(edge, "crt"), Key: m.file(edge, "key")}
	}
	if m.tokens != "" {
		clients.Tokens = m.tokenFile("tokens.yaml")
	}
	return e, clients
}

func (m *Mesh) file(of Part, kind string) string {
	return filepath.Join(m.keys.dir, strings.ReplaceAll(string(of), " ", "-")+"."+kind)
}

func (m *Mesh) replace(name string, text []byte) {
	m.t.Helper()
	next := filepath.Join(m.keys.dir, ".next")
	require.NoError(m.t, os.WriteFile(next, text, 0o600))
	require.NoError(m.t, os.Rename(next, filepath.Join(m.keys.dir, name)))
}

func inPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
