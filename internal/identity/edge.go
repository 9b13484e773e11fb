package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// EdgeConfig configures TLS for the client port. Clients verify the server by its host name, as browsers do, and
// need no identity in the mesh. The files are read for each connection, so they can be replaced while the server
// runs. The tags are flags of the orchestrator.
type EdgeConfig struct {
	Cert string `name:"client-tls-cert" help:"PEM file with the certificate for clients; it names the host that they dial (empty means plain text, on loopback only)." env:"TROUPE_CLIENT_TLS_CERT" type:"path" default:"" placeholder:"FILE"`
	Key  string `name:"client-tls-key" help:"PEM file with its key." env:"TROUPE_CLIENT_TLS_KEY" type:"path" default:"" placeholder:"FILE"`
	CA   string `name:"client-tls-ca" help:"PEM file with the CAs of client certificates." env:"TROUPE_CLIENT_TLS_CA" type:"path" default:"" placeholder:"FILE"`
}

// Open returns the source of the port's certificates, or nil if none is configured. It fails if files are unusable
// or a certificate has expired. If a later reload fails, that is logged and the previous certificates stay in use.
func (e EdgeConfig) Open(log *zap.Logger) (*EdgeSource, error) {
	if e == (EdgeConfig{}) {
		return nil, nil
	}
	if e.Cert == "" || e.Key == "" {
		return nil, errors.New("--client-tls-cert and --client-tls-key belong together, and --client-tls-ca needs both")
	}
	first, err := e.readKeys(nil)
	if err != nil {
		return nil, err
	}
	return &EdgeSource{reloader[*edgeKeys]{
		log: log, read: e.readKeys, last: first, label: zap.String("flag", "--client-tls-cert"),
		failedMessage: "the new certificate for clients is invalid; the previous one stays in use", reloadedMessage: "new certificate for clients",
	}}, nil
}

// CheckAddress returns a function that fails if serving clients at an address is unsafe. The error says how to
// make it safe.
func (e EdgeConfig) CheckAddress(plaintext bool) func(flag string, at net.Addr) error {
	return func(flag string, at net.Addr) error {
		if plaintext || e.Cert != "" || IsLoopback(at) {
			return nil
		}
		return fmt.Errorf("%s: other machines reach %s, and plain text could be read on the network; "+
			"give --client-tls-cert and --client-tls-key, serve on 127.0.0.1, or add --insecure-plaintext-beyond-loopback", flag, at)
	}
}

// ClientTLS configures how a client verifies the orchestrator, and which certificate the client presents. The tags
// are flags of troupe.
type ClientTLS struct {
	CA   string `name:"tls-ca" help:"PEM file with the CAs of the orchestrator, or system (empty means plain text)." env:"TROUPE_ADDR_TLS_CA" placeholder:"FILE"`
	Cert string `name:"tls-cert" help:"PEM file with the certificate for the orchestrator." env:"TROUPE_ADDR_TLS_CERT" type:"path" default:"" placeholder:"FILE"`
	Key  string `name:"tls-key" help:"PEM file with its key." env:"TROUPE_ADDR_TLS_KEY" type:"path" default:"" placeholder:"FILE"`
}

// SystemCA is the flag value for the CAs that the machine trusts.
const SystemCA = "system"

// Credentials returns the transport credentials of the client.
func (c ClientTLS) Credentials() (credentials.TransportCredentials, error) {
	switch {
	case c == (ClientTLS{}):
		return insecure.NewCredentials(), nil
	case c.CA == "":
		return nil, errors.New("--tls-ca: a client certificate is sent only over TLS; name the file of the CA, or system")
	case (c.Cert == "") != (c.Key == ""):
		return nil, errors.New("--tls-cert and --tls-key belong together")
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	var err error
	if c.CA != SystemCA {
		if cfg.RootCAs, err = poolFromFile(c.CA); err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
	}
	if c.Cert != "" {
		if _, err := tls.LoadX509KeyPair(c.Cert, c.Key); err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
			return &pair, err
		}
	}
	return credentials.NewTLS(cfg), nil
}

func poolFromFile(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	return poolFromPEM(file, text)
}

func poolFromPEM(file string, text []byte) (*x509.CertPool, error) {
	all := x509.NewCertPool()
	if !all.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no PEM certificate", file)
	}
	return all, nil
}
