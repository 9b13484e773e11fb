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

// TokenConfig configures the bearer token that a client sends to an orchestrator. The tags are flags of troupe. No
// flag contains the token itself, because every user of the machine can read flags in the process list.
type TokenConfig struct {
	File string `name:"token-file" help:"File with the bearer token, read for each call." env:"TROUPE_TOKEN_FILE" type:"path" default:"" placeholder:"FILE"`
}

// TokenVariable is the environment variable for the token of users without a token file.
const TokenVariable = "TROUPE_TOKEN"

// Credentials returns credentials that send the token with each call, or nil if there is no token. Without TLS the
// address must be on loopback, so that a token is never sent over the network in plain text.
func (t TokenConfig) Credentials(addr string, tls bool) (credentials.PerRPCCredentials, error) {
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
	_, err := shown.readToken() // fails early on a missing file
	return shown, err
}

// IsLoopbackTarget reports whether traffic to a gRPC target stays on this machine.
func IsLoopbackTarget(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// tokenCredentials implements credentials.PerRPCCredentials with a bearer token.
type tokenCredentials struct {
	file string // path of the token file (empty if text is the token)
	text secret.Value
	tls  bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t *tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := t.readToken()
	if err != nil {
		return nil, err
	}
	return map[string]string{Header: Scheme + text.Reveal()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (t *tokenCredentials) RequireTransportSecurity() bool { return t.tls }

// maxTokenFileBytes is the size limit of a token file in bytes. It is far larger than any token.
const maxTokenFileBytes = 16 << 10

func (t *tokenCredentials) readToken() (secret.Value, error) {
	if t.file == "" {
		return t.text, nil
	}
	info, err := os.Stat(t.file)
	if err == nil && info.Size() > maxTokenFileBytes {
		err = fmt.Errorf("%s is too large for a file with one token", t.file)
	}
	if err != nil {
		return secret.Value{}, fmt.Errorf("--token-file: %w", err)
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return secret.Value{}, fmt.Errorf("--token-file: %w", err)
	}
	token, err := parseToken(string(text))
	if err != nil {
		return token, fmt.Errorf("--token-file: %s: %w", t.file, err)
	}
	return token, nil
}

// parseToken returns the token in the content of a file or variable. Unlike gRPC's own error, its error does not
// quote an invalid token.
func parseToken(text string) (secret.Value, error) {
	token := strings.TrimSpace(text)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return secret.Value{}, errors.New("it must hold one token, and nothing else")
	}
	return secret.New(token), nil
}
