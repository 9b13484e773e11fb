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

// EdgeSource provides the current TLS settings of the client port. It is safe for concurrent use. A nil EdgeSource
// stands for a port in plain text.
type EdgeSource struct{ reloader[*edgeKeys] }

// edgeKeys are the TLS settings of the client port, with the contents of the files that they were read from.
type edgeKeys struct {
	tls      *tls.Config
	contents keyContents // contents of the files
}

func (k *edgeKeys) leaf() *x509.Certificate { return k.tls.Certificates[0].Leaf }

// Credentials returns the transport credentials of the server (nil for a port in plain text).
func (s *EdgeSource) Credentials() credentials.TransportCredentials {
	if s == nil {
		return nil
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current().tls, nil },
	})
}

// RegisterMetrics registers the gauge of the certificate's remaining validity, as Source.RegisterMetrics does.
func (s *EdgeSource) RegisterMetrics(meter metric.Meter) error {
	if s == nil {
		return nil
	}
	return registerValidityGauge(meter, func() *x509.Certificate { return s.current().leaf() }, attribute.String("of", "clients"))
}

// refresh implements Refreshable.
func (s *EdgeSource) refresh() {
	if s != nil {
		s.current()
	}
}

// readKeys reads the keys from the files. It returns last if the files have not changed.
func (e EdgeConfig) readKeys(last *edgeKeys) (*edgeKeys, error) {
	from, err := readKeyFiles("--client-tls", e.Cert, e.Key, e.CA)
	if err != nil {
		return nil, err
	}
	if last != nil && from == last.contents {
		return last, nil
	}
	pair, err := tls.X509KeyPair([]byte(from.cert), []byte(from.key))
	if err != nil {
		return nil, fmt.Errorf("--client-tls-cert: %s and the key in %s are not a PEM certificate and key pair: %w", e.Cert, e.Key, err)
	}
	if now := time.Now(); now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("--client-tls-cert: %s is valid from %s until %s, and not now; clients would reject it", e.Cert,
			pair.Leaf.NotBefore.Format(time.RFC3339), pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
	}
	if e.CA != "" {
		if cfg.ClientCAs, err = poolFromPEM(e.CA, []byte(from.ca)); err != nil {
			return nil, fmt.Errorf("--client-tls-ca: %w", err)
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return &edgeKeys{cfg, from}, nil
}
