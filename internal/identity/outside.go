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

// Files are those of a connection to a server that is not of the mesh, such as etcd, which is
// known by the host name that was dialed, and not by a URI. Each may be empty.
type Files struct{ CA, Cert, Key string }

// Outside is what a connection to a server that is not of the mesh asks of it: TLS 1.3, and a
// certificate of the host that was dialed. What the files do not name is that of this process
// and of its mesh; without an identity, the CAs are those of the system. Files that cannot be
// used later go to the log, and the last ones stay in use. The files are those of the flags
// --<server>-ca, --<server>-cert and --<server>-key.
func Outside(server string, files Files, self *Source, log *zap.Logger) (credentials.TransportCredentials, error) {
	o := &outside{server: server, files: files, self: self, log: log}
	var err error
	if o.last, err = o.config(); err != nil {
		return nil, err
	}
	return &renewing{credentials.NewTLS(o.last), o}, nil
}

// As returns the credentials of somebody whom a server beside the mesh knows by a common name, and
// who has no identity inside. Whoever has the CA for development can be anybody there.
func (ca *CA) As(name string) (credentials.TransportCredentials, error) {
	pair, err := ca.issue(named(name, devLife))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}
	show(cfg, pair)
	return credentials.NewTLS(cfg), nil
}

// outside is where the TLS of such a connection comes from.
type outside struct {
	server string
	files  Files
	self   *Source
	log    *zap.Logger

	mu     sync.Mutex
	last   *tls.Config
	lament string // what was last said to be wrong
}

// current is the TLS to use now.
func (o *outside) current() *tls.Config {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, err := o.config()
	if err != nil {
		o.say("the new keys cannot be used; going on with the last ones", err)
		return o.last
	}
	o.last = next
	return next
}

func (o *outside) complain(message string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.say(message, err)
}

// say tells the log, unless that was the last that it was told.
func (o *outside) say(message string, err error) {
	if err.Error() != o.lament {
		o.lament = err.Error()
		o.log.Warn(message, zap.String("server", o.server), zap.Error(err))
	}
}

func (o *outside) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	if (o.files.Cert == "") != (o.files.Key == "") {
		return nil, fmt.Errorf("--%[1]s-cert and --%[1]s-key belong together; give both, or none", o.server)
	}
	if o.self != nil {
		own := o.self.current()
		show(cfg, own.pair)
		cfg.RootCAs = x509.NewCertPool()
		for _, ca := range own.cas.X509Authorities() {
			cfg.RootCAs.AddCert(ca)
		}
	}
	if o.files.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.files.Cert, o.files.Key)
		if err != nil {
			return nil, fmt.Errorf("--%s-cert: %w", o.server, err)
		}
		show(cfg, pair)
	}
	if o.files.CA != "" {
		var err error
		if cfg.RootCAs, err = pool(o.files.CA); err != nil {
			return nil, fmt.Errorf("--%s-ca: %w", o.server, err)
		}
	}
	return cfg, nil
}

// show has the certificate sent to every server that asks for one: one that does not trust it
// says so, which tells more than that there is none.
func show(cfg *tls.Config, pair tls.Certificate) {
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
}

// renewing makes each handshake with the keys of that moment.
type renewing struct {
	credentials.TransportCredentials
	outside *outside
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *renewing) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := credentials.NewTLS(r.outside.current()).ClientHandshake(ctx, authority, raw)
	if err != nil && !lost(err) {
		r.outside.complain("the server at the other end is refused", err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (r *renewing) Clone() credentials.TransportCredentials {
	return &renewing{r.TransportCredentials.Clone(), r.outside}
}
