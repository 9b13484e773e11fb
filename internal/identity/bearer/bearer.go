// Package bearer authenticates the clients of the orchestrator by the bearer token of each call. The token is
// listed in a token file or was issued by an OpenID Connect issuer (guarantee S7). Only the token determines the
// tenant of a call.
package bearer

import (
	"context"
	"fmt"
	"net"
	"strings"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/oidc"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Config configures the authentication of clients. The tags are flags of the orchestrator. A client certificate
// checked by --client-tls-ca opens the connection but does not identify the client, because another party may
// issue certificates than the one that assigns tenants.
type Config struct {
	Tokens string      `name:"client-tokens" help:"YAML file with the callers and the SHA-256 of their tokens (see troupe new token). It is read again when it changes." env:"TROUPE_CLIENT_TOKENS" type:"path" default:"" placeholder:"FILE"`
	OIDC   oidc.Config `embed:""`

	Anonymous bool `name:"insecure-anonymous-clients" help:"Let anyone who reaches the port do everything." env:"TROUPE_INSECURE_ANONYMOUS_CLIENTS"`
}

// isConfigured reports whether clients can authenticate in any way.
func (c Config) isConfigured() bool { return c.Tokens != "" || c.OIDC.Issuer != "" }

// Check returns an error for the first invalid setting.
func (c Config) Check() error {
	if c.Anonymous && c.isConfigured() {
		return fmt.Errorf("--insecure-anonymous-clients: with --client-tokens or --oidc-issuer no caller is anonymous; leave it out, or them")
	}
	return c.OIDC.Check()
}

// CheckAddress returns an error if serving clients at the address is unsafe. The error says how to make it safe.
func (c Config) CheckAddress(flag string, at net.Addr) error {
	if c.isConfigured() || c.Anonymous || identity.IsLoopback(at) {
		return nil
	}
	return fmt.Errorf("%s: other machines reach %s and could call everything there without authentication; "+
		"give --client-tokens or --oidc-issuer, serve on 127.0.0.1, or add --insecure-anonymous-clients", flag, at)
}

// Authenticator authenticates the clients that call the orchestrator. It is safe for concurrent use.
type Authenticator struct {
	tokens *token.File    // nil if not configured
	issuer *oidc.Verifier // nil if not configured
}

// Open returns an Authenticator for a configuration. It fails if a file is unusable. It does not contact an issuer
// yet.
func Open(cfg Config, log *zap.Logger) (*Authenticator, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	c := &Authenticator{}
	var err error
	if cfg.Tokens != "" {
		if c.tokens, err = token.Open(cfg.Tokens, log); err != nil {
			return nil, err
		}
	}
	if cfg.OIDC.Issuer != "" {
		if c.issuer, err = oidc.New(cfg.OIDC, log); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// RegisterMetrics registers a gauge that tells whether the token file is usable, if one is configured.
func (a *Authenticator) RegisterMetrics(meter metric.Meter) error {
	return a.tokens.RegisterMetrics(meter)
}

// Authenticate implements rpc.Authenticator. Without any configuration every caller is Anybody in the default
// tenant. Otherwise a call must carry a token. The only exception is the health check of a load balancer, whose
// calls are counted by address. Modes: user_unauthenticated; system_network if the keys of the issuer cannot be
// fetched.
func (a *Authenticator) Authenticate(ctx context.Context) (identity.Principal, error) {
	if a.tokens == nil && a.issuer == nil {
		return identity.Principal{Role: identity.Anybody, Tenant: identity.DefaultTenant}, nil
	}
	text, err := tokenFromCall(ctx)
	switch method, _ := grpc.Method(ctx); {
	case text == "" && method == healthpb.Health_Check_FullMethodName:
		return identity.Principal{Role: identity.Anybody, Tenant: identity.DefaultTenant}, nil
	case err != nil:
		return identity.Principal{}, err
	case a.tokens != nil && (strings.HasPrefix(text, token.Prefix) || a.issuer == nil):
		return a.tokens.Principal(text)
	case a.issuer != nil:
		return a.issuer.Principal(ctx, text)
	}
	return identity.Principal{}, newUnauthenticatedError("this token is unknown; ask an operator of the mesh for one")
}

// Header is the metadata key of a bearer token, and Scheme is the prefix of its value.
const (
	Header = "authorization"
	Scheme = "Bearer "
)

// tokenFromCall returns the bearer token in the metadata of a call.
func tokenFromCall(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, Header)
	switch {
	case len(values) == 0:
		return "", newUnauthenticatedError("a token is needed; send one as `authorization: Bearer TOKEN`, with troupe by --token-file or TROUPE_TOKEN")
	case len(values) > 1:
		return "", newUnauthenticatedError("the call has more than one authorization; send one")
	case len(values[0]) <= len(Scheme) || !strings.EqualFold(values[0][:len(Scheme)], Scheme):
		return "", newUnauthenticatedError("the authorization must be `Bearer TOKEN`")
	}
	return strings.TrimSpace(values[0][len(Scheme):]), nil
}

func newUnauthenticatedError(message string) *failure.Error {
	return failure.New(failure.UserUnauthenticated, "authenticate", message)
}
