package bearer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/pkg/secret"
)

// Token configures the token that a client sends to an orchestrator. The tags are flags of troupe. No flag
// holds the token itself, because the process list shows flags to every user of the machine.
type Token struct {
	File string `name:"token-file" help:"File with the bearer token, read for each call." env:"TROUPE_TOKEN_FILE" type:"path" default:"" placeholder:"FILE"`
}

// TokenVariable is the environment variable that holds a token for users without a token file.
const TokenVariable = "TROUPE_TOKEN"

// Credentials returns credentials that send the token with each call, or nil if there is no token. Without TLS
// the address must be on loopback, so that a token never leaves the machine in plain text.
func (t Token) Credentials(addr string, tls bool) (credentials.PerRPCCredentials, error) {
	shown := &tokenCredentials{file: t.File, tls: tls}
	if t.File == "" {
		text := os.Getenv(TokenVariable)
		if text == "" {
			return nil, nil
		}
		var err error
		if shown.text, err = parseToken(text); err != nil {
			return nil, fmt.Errorf("%s: %w", TokenVariable, err)
		}
	}
	if !tls && !IsLoopbackTarget(addr) {
		return nil, fmt.Errorf("--token-file: others could read the token on its way to %s, which is in plain text; add --tls-ca", addr)
	}
	_, err := shown.read() // fails early on a missing file
	return shown, err
}

// IsLoopbackTarget reports whether plain text that is sent to an address stays on this machine.
func IsLoopbackTarget(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// tokenCredentials are credentials.PerRPCCredentials.
type tokenCredentials struct {
	file string // (empty if text holds the token)
	text secret.Value
	tls  bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (s *tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := s.read()
	if err != nil {
		return nil, err
	}
	return map[string]string{Header: Scheme + text.Reveal()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (s *tokenCredentials) RequireTransportSecurity() bool { return s.tls }

// maxTokenFile limits the size of a token file in bytes. It is far above the size of any token.
const maxTokenFile = 16 << 10

func (s *tokenCredentials) read() (secret.Value, error) {
	if s.file == "" {
		return s.text, nil
	}
	info, err := os.Stat(s.file)
	if err == nil && info.Size() > maxTokenFile {
		err = fmt.Errorf("%s is too large for a file with one token", s.file)
	}
	if err != nil {
		return secret.Value{}, fmt.Errorf("--token-file: %w", err)
	}
	text, err := os.ReadFile(s.file)
	if err != nil {
		return secret.Value{}, fmt.Errorf("--token-file: %w", err)
	}
	token, err := parseToken(string(text))
	if err != nil {
		return token, fmt.Errorf("--token-file: %s: %w", s.file, err)
	}
	return token, nil
}

// parseToken returns the token in a text. Its error does not quote an invalid token; the error of gRPC would.
func parseToken(text string) (secret.Value, error) {
	token := strings.TrimSpace(text)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return secret.Value{}, errors.New("it must hold one token, and nothing else")
	}
	return secret.New(token), nil
}
