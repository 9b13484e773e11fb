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

// Edge is the TLS of the port for clients, who know the server by its host name, as browsers
// do, and need no identity of the mesh. The files are read for each connection, so that they
// can be replaced while it runs. The tags are flags of the orchestrator.
type Edge struct {
	Cert string `name:"client-tls-cert" help:"PEM file with the certificate for clients; it names the host that they dial (empty means plain text, on loopback only)." env:"TROUPE_CLIENT_TLS_CERT" type:"path" default:"" placeholder:"FILE"`
	Key  string `name:"client-tls-key" help:"PEM file with its key." env:"TROUPE_CLIENT_TLS_KEY" type:"path" default:"" placeholder:"FILE"`
	CA   string `name:"client-tls-ca" help:"PEM file with the CAs of client certificates." env:"TROUPE_CLIENT_TLS_CA" type:"path" default:"" placeholder:"FILE"`
}

// Open returns the TLS of the port; nil when nothing is configured. Files that cannot be used now
// are an error, and so is a certificate that has ended; later they go to the log, and the last ones
// stay in use.
func (e Edge) Open(log *zap.Logger) (*Shown, error) {
	if e == (Edge{}) {
		return nil, nil
	}
	if e.Cert == "" || e.Key == "" {
		return nil, errors.New("--client-tls-cert and --client-tls-key belong together, and --client-tls-ca needs both")
	}
	first, err := e.read(nil)
	if err != nil {
		return nil, err
	}
	return &Shown{renewed[*edgeKeys]{
		log: log, read: e.read, last: first, of: zap.String("flag", "--client-tls-cert"),
		wrong: "the new certificate for clients cannot be used; going on with the last one", others: "new certificate for clients",
	}}, nil
}

// Permit says why a port for clients must not be served at the address, and the way out.
func (e Edge) Permit(plaintext bool) func(flag string, at net.Addr) error {
	return func(flag string, at net.Addr) error {
		if plaintext || e.Cert != "" || Loopback(at) {
			return nil
		}
		return fmt.Errorf("%s: other machines reach %s, and in plain text anybody reads along; "+
			"give --client-tls-cert and --client-tls-key, serve on 127.0.0.1, or add --insecure-plaintext-beyond-loopback", flag, at)
	}
}

// Trust is what a client of the mesh asks of the orchestrator, and shows to it. The tags are
// flags of troupe.
type Trust struct {
	CA   string `name:"tls-ca" help:"PEM file with the CAs of the orchestrator, or system (empty means plain text)." env:"TROUPE_ADDR_TLS_CA" placeholder:"FILE"`
	Cert string `name:"tls-cert" help:"PEM file with the certificate for the orchestrator." env:"TROUPE_ADDR_TLS_CERT" type:"path" default:"" placeholder:"FILE"`
	Key  string `name:"tls-key" help:"PEM file with its key." env:"TROUPE_ADDR_TLS_KEY" type:"path" default:"" placeholder:"FILE"`
}

// SystemCA stands for the CAs that the machine trusts.
const SystemCA = "system"

// Credentials are those of the client.
func (c Trust) Credentials() (credentials.TransportCredentials, error) {
	switch {
	case c == (Trust{}):
		return insecure.NewCredentials(), nil
	case c.CA == "":
		return nil, errors.New("--tls-ca: a certificate is shown over TLS only; name the file of the CA, or system")
	case (c.Cert == "") != (c.Key == ""):
		return nil, errors.New("--tls-cert and --tls-key belong together")
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	var err error
	if c.CA != SystemCA {
		if cfg.RootCAs, err = pool(c.CA); err != nil {
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

func pool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	return poolOf(file, text)
}

func poolOf(file string, text []byte) (*x509.CertPool, error) {
	all := x509.NewCertPool()
	if !all.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return all, nil
}
