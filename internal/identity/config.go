package identity

import (
	"errors"
	"fmt"
	"net"

	"go.uber.org/zap"
)

// Config configures the identity of a process. Its tags define the flags, the environment variables and the help
// text of every service and worker.
type Config struct {
	Cert        string `name:"tls-cert" help:"PEM file with the certificate chain of this process, read again when it changes (empty means plain text, on loopback only)." env:"TROUPE_TLS_CERT" type:"path" default:"" placeholder:"FILE"`
	Key         string `name:"tls-key" help:"PEM file with the key of the certificate." env:"TROUPE_TLS_KEY" type:"path" default:"" placeholder:"FILE"`
	CA          string `name:"tls-ca" help:"PEM file with the CAs of the mesh." env:"TROUPE_TLS_CA" type:"path" default:"" placeholder:"FILE"`
	TrustDomain string `help:"Trust domain of the mesh (empty means the certificate's)." env:"TROUPE_TRUST_DOMAIN" placeholder:"NAME"`
	DevCA       string `name:"tls-dev-ca" help:"For development on loopback, instead of the files: folder of a CA that is created if needed and issues the certificate." env:"TROUPE_TLS_DEV_CA" type:"path" default:"" placeholder:"DIR"`

	InsecurePlaintext bool `name:"insecure-plaintext-beyond-loopback" help:"Serve other machines unencrypted and without authentication." env:"TROUPE_INSECURE_PLAINTEXT_BEYOND_LOOPBACK"`
}

// Open returns the identity of a process, or nil if the configuration specifies none. agent is the agent of a
// worker (empty for other roles). The certificate must match the role and the agent, because peers would reject
// any other. Failed reloads and rejected connections are logged.
func Open(cfg Config, role Role, agent string, log *zap.Logger) (*Source, error) {
	var read func(last *keys) (*keys, error)
	switch {
	case cfg.DevCA != "" && cfg.Cert+cfg.Key+cfg.CA != "":
		return nil, errors.New("--tls-dev-ca: it replaces --tls-cert, --tls-key and --tls-ca; give either it or them")
	case cfg.DevCA != "":
		ca, err := OpenCA(cfg.DevCA)
		if err != nil {
			return nil, fmt.Errorf("--tls-dev-ca: %w", err)
		}
		read = ca.certificateIssuer(ID{ca.domain, role, agent})
	case cfg.Cert == "" && cfg.Key == "" && cfg.CA == "":
		return nil, nil
	case cfg.Cert == "" || cfg.Key == "" || cfg.CA == "":
		return nil, errors.New("--tls-cert, --tls-key and --tls-ca belong together; give all three, or none")
	default:
		read = keyFiles{cfg.Cert, cfg.Key, cfg.CA}.readKeys
	}
	first, err := read(nil)
	if err != nil {
		return nil, err
	}
	if cfg.TrustDomain != "" && cfg.TrustDomain != first.id.TrustDomain {
		return nil, fmt.Errorf("--trust-domain: the certificate belongs to %q, not to %q", first.id.TrustDomain, cfg.TrustDomain)
	}
	if want := (ID{first.id.TrustDomain, role, agent}); first.id != want {
		return nil, fmt.Errorf("--tls-cert: the certificate belongs to %s; this process needs one for %s", first.id, want)
	}
	log.Info("identity", zap.Stringer("id", first.id), expiryField(first.leaf()))
	return &Source{id: first.id, reloader: reloader[*keys]{
		log: log, read: requireSameID(first.id, read), last: first, label: zap.Stringer("id", first.id),
		failedMessage: "the new keys are invalid; the previous ones stay in use", reloadedMessage: "new keys",
	}}, nil
}

// CheckAddress returns an error if serving at the address is unsafe. An address is unsafe if other machines reach
// it and TLS for production is not configured. The error says how to make it safe.
func (c Config) CheckAddress(flag string, at net.Addr) error {
	switch {
	case IsLoopback(at):
		return nil
	case c.DevCA != "":
		return fmt.Errorf("%s: other machines reach %s, but a development CA is for one machine only; "+
			"give --tls-cert, --tls-key and --tls-ca instead of --tls-dev-ca, or serve on 127.0.0.1", flag, at)
	case c.Cert == "" && !c.InsecurePlaintext:
		return fmt.Errorf("%s: other machines reach %s, and plain text authenticates no caller; "+
			"give --tls-cert, --tls-key and --tls-ca, serve on 127.0.0.1, or add --insecure-plaintext-beyond-loopback", flag, at)
	}
	return nil
}

// IsLoopback reports whether an address can be reached only from this machine.
func IsLoopback(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
