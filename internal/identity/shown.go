package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/credentials"
)

// Shown is the TLS of the port for clients as its files are now. Safe for concurrent use. Nil is a
// port in plain text.
type Shown struct{ renewed[*edgeKeys] }

// edgeKeys are what a server shows to clients, and asks of them.
type edgeKeys struct {
	tls  *tls.Config
	from texts // of the files that they were read from
}

func (k *edgeKeys) leaf() *x509.Certificate { return k.tls.Certificates[0].Leaf }

// Credentials are those of the server; nil of a port in plain text.
func (s *Shown) Credentials() credentials.TransportCredentials {
	if s == nil {
		return nil
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current().tls, nil },
	})
}

// Measure tells a meter for how long the certificate is still valid, as Source.Measure does.
func (s *Shown) Measure(meter metric.Meter) error {
	if s == nil {
		return nil
	}
	return measure(meter, func() *x509.Certificate { return s.current().leaf() }, attribute.String("of", "clients"))
}

// look implements Watched.
func (s *Shown) look() {
	if s != nil {
		s.current()
	}
}

// read returns last when the files are those that it came from.
func (e Edge) read(last *edgeKeys) (*edgeKeys, error) {
	from, err := read("--client-tls", e.Cert, e.Key, e.CA)
	if err != nil {
		return nil, err
	}
	if last != nil && from == last.from {
		return last, nil
	}
	pair, err := tls.X509KeyPair([]byte(from.cert), []byte(from.key))
	if err != nil {
		return nil, fmt.Errorf("--client-tls-cert: %s and the key in %s are no pair in PEM: %w", e.Cert, e.Key, err)
	}
	if now := time.Now(); now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("--client-tls-cert: %s is valid from %s until %s, and not now; no client would accept it", e.Cert,
			pair.Leaf.NotBefore.Format(time.RFC3339), pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
	}
	if e.CA != "" {
		if cfg.ClientCAs, err = poolOf(e.CA, []byte(from.ca)); err != nil {
			return nil, fmt.Errorf("--client-tls-ca: %w", err)
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return &edgeKeys{cfg, from}, nil
}
