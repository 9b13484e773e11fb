package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
)

// TLSFiles are the paths of the TLS files for connections to a server outside the mesh, such as etcd. Such a
// server is verified by its host name, not by a URI. Each path may be empty.
type TLSFiles struct{ CA, Cert, Key string }

// ExternalCredentials returns the credentials for connections to a server outside the mesh. They require TLS 1.3
// and a server certificate for the dialed host. Without files they use the certificate of this process and the CAs
// of its mesh. A process without an identity uses the CAs of the system. If the files become unusable later, that
// is logged and the previous ones stay in use. The files come from the flags --<server>-ca, --<server>-cert and
// --<server>-key.
func ExternalCredentials(server string, files TLSFiles, self *Source, log *zap.Logger) (credentials.TransportCredentials, error) {
	o := &externalTLS{server: server, files: files, self: self, log: log}
	var err error
	if o.last, err = o.loadConfig(); err != nil {
		return nil, err
	}
	return &externalCredentials{credentials.NewTLS(o.last), o}, nil
}

// ExternalUserCredentials returns the credentials of a user of a server outside the mesh, identified by a common
// name. The user has no identity inside the mesh. Anyone who can read the development CA can act as any such user.
func (ca *CA) ExternalUserCredentials(name string) (credentials.TransportCredentials, error) {
	pair, err := ca.issue(certificateTemplate(name, devLifetime))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}
	presentCertificate(cfg, pair)
	return credentials.NewTLS(cfg), nil
}

// externalTLS reloads the TLS settings for connections to a server outside the mesh.
type externalTLS struct {
	server string
	files  TLSFiles
	self   *Source
	log    *zap.Logger

	mu         sync.Mutex
	last       *tls.Config
	lastLogged string // the last error that was logged
}

// current returns the latest valid TLS settings.
func (e *externalTLS) current() *tls.Config {
	e.mu.Lock()
	defer e.mu.Unlock()
	next, err := e.loadConfig()
	if err != nil {
		e.logErrorLocked("the new keys are invalid; the previous ones stay in use", err)
		return e.last
	}
	e.last = next
	return next
}

func (e *externalTLS) logError(message string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.logErrorLocked(message, err)
}

// logErrorLocked logs an error, unless it equals the last logged one. The caller must hold mu.
func (e *externalTLS) logErrorLocked(message string, err error) {
	if err.Error() != e.lastLogged {
		e.lastLogged = err.Error()
		e.log.Warn(message, zap.String("server", e.server), zap.Error(err))
	}
}

func (e *externalTLS) loadConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	if (e.files.Cert == "") != (e.files.Key == "") {
		return nil, fmt.Errorf("--%[1]s-cert and --%[1]s-key belong together; give both, or none", e.server)
	}
	if e.self != nil {
		own := e.self.current()
		presentCertificate(cfg, own.pair)
		cfg.RootCAs = x509.NewCertPool()
		for _, ca := range own.cas.X509Authorities() {
			cfg.RootCAs.AddCert(ca)
		}
	}
	if e.files.Cert != "" {
		pair, err := tls.LoadX509KeyPair(e.files.Cert, e.files.Key)
		if err != nil {
			return nil, fmt.Errorf("--%s-cert: %w", e.server, err)
		}
		presentCertificate(cfg, pair)
	}
	if e.files.CA != "" {
		var err error
		if cfg.RootCAs, err = poolFromFile(e.files.CA); err != nil {
			return nil, fmt.Errorf("--%s-ca: %w", e.server, err)
		}
	}
	return cfg, nil
}

// presentCertificate makes the client send the certificate to every server that requests one. A server that does
// not trust it then reports that, which is clearer than a report of a missing certificate.
func presentCertificate(cfg *tls.Config, pair tls.Certificate) {
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
}

// externalCredentials uses the current keys for each handshake.
type externalCredentials struct {
	credentials.TransportCredentials
	settings *externalTLS
}

// ClientHandshake implements credentials.TransportCredentials.
func (e *externalCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := credentials.NewTLS(e.settings.current()).ClientHandshake(ctx, authority, raw)
	if err != nil && !isConnectionLoss(err) {
		e.settings.logError("the server failed verification; the connection is closed", err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (e *externalCredentials) Clone() credentials.TransportCredentials {
	return &externalCredentials{e.TransportCredentials.Clone(), e.settings}
}
