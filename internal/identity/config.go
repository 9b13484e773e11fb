package identity

import (
	"errors"
	"fmt"
	"net"

	"go.uber.org/zap"
)

// Config is where a process finds its identity. The tags are the flags, the environment
// variables and the help text of every service and worker.
type Config struct {
	Cert        string `name:"tls-cert" help:"PEM file with the certificate chain of this process, read again when it changes (empty means plain text, on loopback only)." env:"TROUPE_TLS_CERT" type:"path" default:"" placeholder:"FILE"`
	Key         string `name:"tls-key" help:"PEM file with the key of the certificate." env:"TROUPE_TLS_KEY" type:"path" default:"" placeholder:"FILE"`
	CA          string `name:"tls-ca" help:"PEM file with the CAs of the mesh." env:"TROUPE_TLS_CA" type:"path" default:"" placeholder:"FILE"`
	TrustDomain string `help:"Trust domain of the mesh (empty means that of the certificate)." env:"TROUPE_TRUST_DOMAIN" placeholder:"NAME"`
	DevCA       string `name:"tls-dev-ca" help:"For development on loopback, instead of the files: folder of a CA that is created if needed and issues the certificate." env:"TROUPE_TLS_DEV_CA" type:"path" default:"" placeholder:"DIR"`

	InsecurePlaintext bool `name:"insecure-plaintext-beyond-loopback" help:"Serve other machines unencrypted and without authentication." env:"TROUPE_INSECURE_PLAINTEXT_BEYOND_LOOPBACK"`
}

// Open returns the identity of a process, nil when the configuration names none. agent is
// that of a worker, and else empty. The certificate must be that of the role, and of the
// agent: a process that nobody would talk to does not start. What becomes of the files, and
// which connections are refused, goes to the log.
func Open(cfg Config, role Role, agent string, log *zap.Logger) (*Source, error) {
	var read func(last *keys) (*keys, error)
	switch {
	case cfg.DevCA != "" && cfg.Cert+cfg.Key+cfg.CA != "":
		return nil, errors.New("--tls-dev-ca: it gives the process a certificate; leave --tls-cert, --tls-key and --tls-ca out, or it")
	case cfg.DevCA != "":
		ca, err := OpenCA(cfg.DevCA)
		if err != nil {
			return nil, fmt.Errorf("--tls-dev-ca: %w", err)
		}
		read = ca.renewing(ID{ca.domain, role, agent})
	case cfg.Cert == "" && cfg.Key == "" && cfg.CA == "":
		return nil, nil
	case cfg.Cert == "" || cfg.Key == "" || cfg.CA == "":
		return nil, errors.New("--tls-cert, --tls-key and --tls-ca belong together; give all three, or none")
	default:
		read = files{cfg.Cert, cfg.Key, cfg.CA}.read
	}
	first, err := read(nil)
	if err != nil {
		return nil, err
	}
	if cfg.TrustDomain != "" && cfg.TrustDomain != first.id.TrustDomain {
		return nil, fmt.Errorf("--trust-domain: the certificate is of %q, and not of %q", first.id.TrustDomain, cfg.TrustDomain)
	}
	if want := (ID{first.id.TrustDomain, role, agent}); first.id != want {
		return nil, fmt.Errorf("--tls-cert: the certificate is that of %s; this process needs one of %s", first.id, want)
	}
	log.Info("identity", zap.Stringer("id", first.id), until(first.leaf()))
	return &Source{id: first.id, renewed: renewed[*keys]{
		log: log, read: same(first.id, read), last: first, of: zap.Stringer("id", first.id),
		wrong: "the new keys cannot be used; going on with the last ones", others: "new keys",
	}}, nil
}

// Permit says why a port at the address must not be served, and the way out: other machines
// reach it, and without TLS of production nobody there would know who is who.
func (c Config) Permit(flag string, at net.Addr) error {
	switch {
	case Loopback(at):
		return nil
	case c.DevCA != "":
		return fmt.Errorf("%s: other machines reach %s, and a CA for development is for one machine; "+
			"give --tls-cert, --tls-key and --tls-ca in the place of --tls-dev-ca, or serve on 127.0.0.1", flag, at)
	case c.Cert == "" && !c.InsecurePlaintext:
		return fmt.Errorf("%s: other machines reach %s, and plain text proves nobody; "+
			"give --tls-cert, --tls-key and --tls-ca, serve on 127.0.0.1, or add --insecure-plaintext-beyond-loopback", flag, at)
	}
	return nil
}

// Loopback reports whether only this machine reaches an address.
func Loopback(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
