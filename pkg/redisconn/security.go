package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Security is what a client shows to Redis, and asks of it: paths of files, each of which
// may be empty. Certificates and the password are read anew for each connection, so that
// they can be replaced while the service runs. The tags are the flags and environment
// variables of the services.
type Security struct {
	CA           string `name:"ca" help:"PEM file with the certificates that that of Redis must come from; for a rediss:// URL. Empty: those of the system." env:"TROUPE_REDIS_CA" type:"path" default:"" placeholder:"FILE"`
	Cert         string `help:"PEM file with the certificate to show to Redis. Empty: none." env:"TROUPE_REDIS_CERT" type:"path" default:"" placeholder:"FILE"`
	Key          string `help:"PEM file with its key." env:"TROUPE_REDIS_KEY" type:"path" default:"" placeholder:"FILE"`
	PasswordFile string `help:"File with the password for Redis, in the place of that of the URL; read for each connection." env:"TROUPE_REDIS_PASSWORD_FILE" type:"path" default:"" placeholder:"FILE"`
}

// tls is the configuration of a URL with what the files add; nil when the URL asks for none.
func (s Security) tls(from *tls.Config) (*tls.Config, error) {
	if from == nil {
		if s.CA != "" || s.Cert != "" || s.Key != "" {
			return nil, errors.New("redis URL: certificates are given, and the URL does not ask for TLS; begin it with rediss://")
		}
		return nil, nil
	}
	from.MinVersion = tls.VersionTLS12
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, fmt.Errorf("redis CA: %w", err)
		}
		from.RootCAs = x509.NewCertPool()
		if !from.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis CA: %s holds no PEM certificate", s.CA)
		}
	}
	if (s.Cert == "") != (s.Key == "") {
		return nil, errors.New("redis certificate: a certificate needs its key, and a key its certificate; give both")
	}
	if s.Cert != "" {
		if _, err := tls.LoadX509KeyPair(s.Cert, s.Key); err != nil {
			return nil, fmt.Errorf("redis certificate: %w", err)
		}
		from.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
			return &pair, err
		}
	}
	return from, nil
}

// credentials reads the password when a connection is made; nil leaves those of the URL.
func (s Security) credentials(user string) func(context.Context) (string, string, error) {
	if s.PasswordFile == "" {
		return nil
	}
	return func(context.Context) (string, string, error) {
		password, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return "", "", fmt.Errorf("redis password: %w", err)
		}
		return user, strings.TrimRight(string(password), "\r\n"), nil
	}
}
