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

// Token is what a client shows to an orchestrator. The tags are flags of troupe. There is none
// for the token itself, because the list of processes shows those to everybody.
type Token struct {
	File string `name:"token-file" help:"File with the bearer token, read for each call." env:"TROUPE_TOKEN_FILE" type:"path" default:"" placeholder:"FILE"`
}

// Variable is the environment variable that holds a token, for who has no file.
const Variable = "TROUPE_TOKEN"

// Credentials show the token with each call; nil when there is none. A token leaves the machine
// over TLS only: without it the address must be on loopback.
func (t Token) Credentials(addr string, tls bool) (credentials.PerRPCCredentials, error) {
	shown := &shown{file: t.File, tls: tls}
	if t.File == "" {
		text := os.Getenv(Variable)
		if text == "" {
			return nil, nil
		}
		var err error
		if shown.text, err = one(text); err != nil {
			return nil, fmt.Errorf("%s: %w", Variable, err)
		}
	}
	if !tls && !Private(addr) {
		return nil, fmt.Errorf("--token-file: others could read the token on its way to %s, which is in plain text; add --tls-ca", addr)
	}
	_, err := shown.token() // a file that is not there is known at once
	return shown, err
}

// Private reports whether what is sent to an address in plain text stays on the machine.
func Private(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// shown are credentials.PerRPCCredentials.
type shown struct {
	file string // empty: text
	text secret.Value
	tls  bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (s *shown) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := s.token()
	if err != nil {
		return nil, err
	}
	return map[string]string{Header: Scheme + text.Reveal()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (s *shown) RequireTransportSecurity() bool { return s.tls }

// maxFile is far above what a token has.
const maxFile = 16 << 10

func (s *shown) token() (secret.Value, error) {
	if s.file == "" {
		return s.text, nil
	}
	info, err := os.Stat(s.file)
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%s is no file with one token", s.file)
	}
	if err != nil {
		return secret.Value{}, fmt.Errorf("--token-file: %w", err)
	}
	text, err := os.ReadFile(s.file)
	if err != nil {
		return secret.Value{}, fmt.Errorf("--token-file: %w", err)
	}
	token, err := one(string(text))
	if err != nil {
		return token, fmt.Errorf("--token-file: %s: %w", s.file, err)
	}
	return token, nil
}

// one is the token that a text holds. What cannot be sent is not quoted, as gRPC would.
func one(text string) (secret.Value, error) {
	token := strings.TrimSpace(text)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return secret.Value{}, errors.New("it must hold one token, and nothing else")
	}
	return secret.New(token), nil
}
