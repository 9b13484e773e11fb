package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// CA is a certificate authority for development and tests. Use it on one machine only, because anyone who can read
// its folder can impersonate any process.
type CA struct {
	dir    string
	domain string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// These are the file names and lifetimes of a development CA and its certificates.
const (
	devDomain    = "dev.troupe"
	devFile      = "dev-ca.pem" // holds key and certificate
	caLifetime   = 10 * 365 * 24 * time.Hour
	devLifetime  = 24 * time.Hour
	fileLifetime = 365 * 24 * time.Hour
	devLeeway    = time.Minute // tolerates clocks that differ
)

// OpenCA opens the CA in a folder. It creates the folder and the CA if they are missing. Processes that call it at
// the same time share one CA.
func OpenCA(dir string) (*CA, error) {
	file := filepath.Join(dir, devFile)
	text, err := os.ReadFile(file) //nolint:gosec // the caller names the folder
	if errors.Is(err, fs.ErrNotExist) {
		if err = createCA(dir, file); err == nil {
			text, err = os.ReadFile(file) //nolint:gosec // as above
		}
	}
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, fmt.Errorf("%s contains no CA; remove it, and a new one is created: %w", file, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA || time.Now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s contains no valid CA; remove it, and a new one is created", file)
	}
	return &CA{dir: dir, domain: devDomain, cert: pair.Leaf, key: key}, nil
}

// WriteFiles writes the certificate of a process, its key and the CA certificate into the folder of the CA. It
// returns the settings that name these files. Existing files are overwritten. The certificate is valid for a year,
// for programs that cannot use the CA themselves.
func (ca *CA) WriteFiles(role Role, agent string) (Config, error) {
	id := ID{ca.domain, role, agent}
	if err := id.validate(); err != nil {
		return Config{}, err
	}
	f, err := ca.writeFiles(ca.dir, strings.TrimSuffix(string(role)+"-"+agent, "-"), processTemplate(id, fileLifetime))
	return Config{Cert: f.Cert, Key: f.Key, CA: f.CA}, err
}

// WriteServerFiles writes the certificate files of a server outside the mesh, such as etcd, into a folder. The
// certificate is valid for localhost and the loopback addresses. It contains no URI, so it proves no identity
// inside the mesh.
func (ca *CA) WriteServerFiles(dir, name string) (TLSFiles, error) {
	return ca.writeFiles(dir, name, certificateTemplate(name, fileLifetime))
}

// writeFiles issues a certificate and writes it with its key and the CA certificate.
func (ca *CA) writeFiles(dir, name string, template *x509.Certificate) (TLSFiles, error) {
	pair, err := ca.issue(template)
	if err != nil {
		return TLSFiles{}, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return TLSFiles{}, err
	}
	name = filepath.Join(dir, name)
	cfg := TLSFiles{Cert: name + ".crt", Key: name + ".key", CA: filepath.Join(dir, "ca.crt")}
	return cfg, errors.Join(
		os.WriteFile(cfg.Cert, pemBlock("CERTIFICATE", pair.Certificate[0]), 0o600),
		os.WriteFile(cfg.Key, pemBlock("PRIVATE KEY", key), 0o600),
		os.WriteFile(cfg.CA, pemBlock("CERTIFICATE", ca.cert.Raw), 0o600))
}

// createCA creates a CA, unless another process has just created it.
func createCA(dir, file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := certificateTemplate("Troupe CA for development", caLifetime)
	cert.URIs = []*url.URL{{Scheme: "spiffe", Host: devDomain}}
	cert.IsCA, cert.BasicConstraintsValid = true, true
	cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageCertSign|x509.KeyUsageCRLSign, nil
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	whole, err := os.CreateTemp(dir, devFile) // readable by its owner only
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(whole.Name()) }()
	_, err = whole.Write(append(pemBlock("CERTIFICATE", der), pemBlock("PRIVATE KEY", keyDER)...))
	if err = errors.Join(err, whole.Close()); err != nil {
		return err
	}
	if err := os.Link(whole.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// issue creates a key and signs a certificate for it from the template. It adds localhost and the loopback
// addresses to the certificate, for programs that verify host names.
func (ca *CA) issue(cert *x509.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert.DNSNames, cert.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.cert, key.Public(), ca.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// processTemplate returns the certificate template for a process with the given id.
func processTemplate(id ID, life time.Duration) *x509.Certificate {
	cert := certificateTemplate(id.EtcdUser(), life)
	cert.URIs = []*url.URL{id.toURL()}
	return cert
}

// certificateTemplate returns a certificate template without a URI, so it proves no identity inside the mesh.
func certificateTemplate(name string, life time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject:      pkix.Name{CommonName: name},
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text()[:16])), // 80 random bits
		NotBefore:    time.Now().Add(-devLeeway),
		NotAfter:     time.Now().Add(life),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
