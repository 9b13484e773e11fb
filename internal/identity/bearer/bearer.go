// Package bearer says who a client of the orchestrator is, by the token that its call carries:
// one of a file of tokens or one of an OpenID Connect issuer (guarantees S7). The tenant of a
// call is that of its token, and never what the call says.
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

// Config is how clients are told apart. The tags are flags of the orchestrator. A certificate
// that --client-tls-ca asks for opens the port, and names nobody: whoever gives those out need
// not be who gives out tenants.
type Config struct {
	Tokens string      `name:"client-tokens" help:"YAML file with the callers and the SHA-256 of their tokens (see troupe new token). It is read again when it changes." env:"TROUPE_CLIENT_TOKENS" type:"path" default:"" placeholder:"FILE"`
	OIDC   oidc.Config `embed:""`

	Anonymous bool `name:"insecure-anonymous-clients" help:"Let anyone who reaches the port do everything." env:"TROUPE_INSECURE_ANONYMOUS_CLIENTS"`
}

// configured reports whether there is any way to tell clients apart.
func (c Config) configured() bool { return c.Tokens != "" || c.OIDC.Issuer != "" }

// Check names the first setting that cannot be.
func (c Config) Check() error {
	if c.Anonymous && c.configured() {
		return fmt.Errorf("--insecure-anonymous-clients: with --client-tokens or --oidc-issuer no caller is anonymous; leave it out, or them")
	}
	return c.OIDC.Check()
}

// Permit says why a port for clients must not be served at the address, and the way out.
func (c Config) Permit(flag string, at net.Addr) error {
	if c.configured() || c.Anonymous || identity.Loopback(at) {
		return nil
	}
	return fmt.Errorf("%s: other machines reach %s, and whoever does could do everything there; "+
		"give --client-tokens or --oidc-issuer, serve on 127.0.0.1, or add --insecure-anonymous-clients", flag, at)
}

// Clients knows those who may call. Safe for concurrent use.
type Clients struct {
	tokens *token.File    // nil: none
	issuer *oidc.Verifier // likewise
}

// Open returns those of the configuration. A file that cannot be used is an error; an issuer is
// asked nothing yet.
func Open(cfg Config, log *zap.Logger) (*Clients, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	c := &Clients{}
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

// Measure tells a meter whether the file of tokens can be used, if there is one.
func (c *Clients) Measure(meter metric.Meter) error { return c.tokens.Measure(meter) }

// Authenticate is an rpc.Authenticate. Where clients cannot be told apart everybody may do all,
// as the default tenant. Else a call must carry a token, but one that only asks for the health
// of the server, as load balancers do, which is anybody's: it is counted by its address. Modes: user_unauthenticated; system_network while the
// issuer's keys are not known.
func (c *Clients) Authenticate(ctx context.Context) (identity.Principal, error) {
	if c.tokens == nil && c.issuer == nil {
		return identity.Principal{Role: identity.Anybody, Tenant: identity.DefaultTenant}, nil
	}
	text, err := carried(ctx)
	switch method, _ := grpc.Method(ctx); {
	case text == "" && method == healthpb.Health_Check_FullMethodName:
		return identity.Principal{Role: identity.Anybody, Tenant: identity.DefaultTenant}, nil
	case err != nil:
		return identity.Principal{}, err
	case c.tokens != nil && (strings.HasPrefix(text, token.Prefix) || c.issuer == nil):
		return c.tokens.Principal(text)
	case c.issuer != nil:
		return c.issuer.Principal(ctx, text)
	}
	return identity.Principal{}, refuse("this token is nobody's; ask an operator of the mesh for one")
}

// Header is the metadata that carries a token, and Scheme is what stands before it there.
const (
	Header = "authorization"
	Scheme = "Bearer "
)

// carried is the token of a call.
func carried(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, Header)
	switch {
	case len(values) == 0:
		return "", refuse("a token is needed; send one as `authorization: Bearer TOKEN`, with troupe by --token-file or TROUPE_TOKEN")
	case len(values) > 1:
		return "", refuse("the call has more than one authorization; send one")
	case len(values[0]) <= len(Scheme) || !strings.EqualFold(values[0][:len(Scheme)], Scheme):
		return "", refuse("the authorization must be `Bearer TOKEN`")
	}
	return strings.TrimSpace(values[0][len(Scheme):]), nil
}

func refuse(message string) *failure.Error {
	return failure.New(failure.UserUnauthenticated, "authenticate", message)
}
