package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// Security holds the paths of the certificate files and the password file for Redis. Each may be empty. The files
// are read for each connection, so they can be replaced while the service runs. The tags define the flags and
// environment variables of the services.
type Security struct {
	CA           string `name:"ca" help:"CAs of Redis in a PEM file (empty means the system's)." env:"TROUPE_REDIS_CA" type:"path" default:"" placeholder:"FILE"`
	Cert         string `help:"PEM file with the client certificate for Redis." env:"TROUPE_REDIS_CERT" type:"path" default:"" placeholder:"FILE"`
	Key          string `help:"PEM file with its key." env:"TROUPE_REDIS_KEY" type:"path" default:"" placeholder:"FILE"`
	PasswordFile string `help:"File with the password for Redis." env:"TROUPE_REDIS_PASSWORD_FILE" type:"path" default:"" placeholder:"FILE"`
}

// tlsConfig returns the TLS configuration made from the URL and the files (nil if the URL does not ask for TLS).
func (s Security) tlsConfig(from *tls.Config) (*tls.Config, error) {
	if from == nil {
		if s.CA != "" || s.Cert != "" || s.Key != "" {
			return nil, errors.New("--redis: certificates are given, and the URL does not ask for TLS; begin it with rediss://")
		}
		return nil, nil
	}
	cfg := from.Clone()
	cfg.MinVersion = tls.VersionTLS12
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, fmt.Errorf("--redis-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--redis-ca: %s holds no PEM certificate", s.CA)
		}
	}
	if (s.Cert == "") != (s.Key == "") {
		return nil, errors.New("--redis-cert and --redis-key: a certificate needs its key, and a key its certificate; give both")
	}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, fmt.Errorf("--redis-cert: %w", err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg, nil
}

// dialer is a function that opens a connection.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// withTLS returns a dialer that uses TLS over the connections of dial if the URL asks for TLS. Its errors are of
// type unsentError.
func (s Security) withTLS(dial dialer, from *tls.Config) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		cfg, err := s.tlsConfig(from)
		if err != nil {
			return nil, unsentError{err}
		}
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, unsentError{err}
		}
		if cfg == nil {
			return raw, nil
		}
		conn := tls.Client(raw, cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, unsentError{err}
		}
		return conn, nil
	}
}

// credentialsProvider returns a function that reads the password file for each connection. It returns nil if there
// is no file; then the password in the URL applies.
func (s Security) credentialsProvider(user string) func(context.Context) (string, string, error) {
	if s.PasswordFile == "" {
		return nil
	}
	return func(context.Context) (string, string, error) {
		password, err := s.password()
		if err != nil {
			return "", "", unsentError{err}
		}
		return user, password, nil
	}
}

// password returns the content of the password file (empty if there is no file).
func (s Security) password() (string, error) {
	if s.PasswordFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("--redis-password-file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("--redis-password-file: %s is empty; write the password of the user into it", s.PasswordFile)
	}
	return password, nil
}
