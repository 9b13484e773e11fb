package credentials

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
)

// Edge is the name of the certificate that the orchestrator shows to clients. It shows another one to the mesh.
const Edge = "edge"

// caFile is the name of the file with the trusted CAs.
const caFile = "ca"

// certificateFolder is a folder of certificates and keys, as processes have it in production. Each file is
// replaced atomically, but a certificate and its key are two files.
type certificateFolder struct {
	dir     string
	ca      tls.Certificate // that signs new certificates
	trusted []byte          // all trusted CAs, in PEM
}

func (f *certificateFolder) path(name, kind string) string {
	return filepath.Join(f.dir, strings.ReplaceAll(name, " ", "-")+"."+kind)
}

func (f *certificateFolder) replace(name, kind string, text []byte) error {
	next := filepath.Join(f.dir, ".next")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, f.path(name, kind))
}

// UsesFiles reports whether processes read their certificates from files.
func (c *Credentials) UsesFiles() bool { return c.files != nil }

// AddCA makes all processes trust one more CA, which signs all certificates that are issued from now on.
func (c *Credentials) AddCA(devCA string) {
	c.t.Helper()
	_, err := identity.OpenCA(devCA)
	require.NoError(c.t, err)
	found, err := filepath.Glob(filepath.Join(devCA, "*.pem"))
	require.NoError(c.t, err)
	require.Len(c.t, found, 1)
	ca, err := tls.LoadX509KeyPair(found[0], found[0])
	require.NoError(c.t, err)
	c.DevCA, c.files.ca = devCA, ca
	c.files.trusted = append(c.files.trusted, toPEM("CERTIFICATE", ca.Leaf.Raw)...)
	require.NoError(c.t, c.files.replace(caFile, "crt", c.files.trusted))
}

// TrustOnlyLatestCA makes all processes stop trusting every CA except the latest.
func (c *Credentials) TrustOnlyLatestCA() {
	c.t.Helper()
	c.files.trusted = toPEM("CERTIFICATE", c.files.ca.Leaf.Raw)
	require.NoError(c.t, c.files.replace(caFile, "crt", c.files.trusted))
}

// IssueCertificate issues a certificate to a process or, under the name Edge, to the client port.
func (c *Credentials) IssueCertificate(name string, id identity.ID, life time.Duration) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(c.t, err)
	cert := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, SerialNumber: new(big.Int).SetBytes([]byte(rand.Text()[:16])),
		NotBefore: time.Now().Add(-time.Second), NotAfter: time.Now().Add(life - time.Second),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if name != Edge {
		id.TrustDomain = c.files.ca.Leaf.URIs[0].Host
		uri, err := url.Parse(id.String())
		require.NoError(c.t, err)
		cert.Subject.CommonName, cert.URIs = id.EtcdUser(), []*url.URL{uri}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, c.files.ca.Leaf, key.Public(), c.files.ca.PrivateKey)
	require.NoError(c.t, err)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(c.t, err)
	require.NoError(c.t, c.files.replace(name, "crt", toPEM("CERTIFICATE", der)))
	require.NoError(c.t, c.files.replace(name, "key", toPEM("PRIVATE KEY", text)))
}

// Certificate returns the latest certificate that was issued under the name.
func (c *Credentials) Certificate(name string) *x509.Certificate {
	c.t.Helper()
	pair, err := tls.LoadX509KeyPair(c.files.path(name, "crt"), c.files.path(name, "key"))
	require.NoError(c.t, err)
	return pair.Leaf
}

func toPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
