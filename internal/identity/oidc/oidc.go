// Package oidc authenticates clients by tokens of an OpenID Connect issuer. The tokens are JWTs that the issuer
// signed for this mesh (guarantee S7).
package oidc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Config configures the issuer and the required claims of its tokens. The tags are flags of the orchestrator.
type Config struct {
	Issuer   string `name:"oidc-issuer" help:"URL of the OpenID Connect issuer of client tokens, with https." env:"TROUPE_OIDC_ISSUER" placeholder:"URL"`
	Audience string `name:"oidc-audience" help:"What the token must be for, and for nothing else: its aud." env:"TROUPE_OIDC_AUDIENCE" placeholder:"AUD"`
	Tenant   string `name:"oidc-tenant-claim" help:"Claim that names the tenant; tokens without it are rejected." default:"tenant" env:"TROUPE_OIDC_TENANT_CLAIM"`
	Admin    string `name:"oidc-admin" help:"Claim and value (or member of a list) that make a client an admin." env:"TROUPE_OIDC_ADMIN" placeholder:"CLAIM=VALUE"`
	CA       string `name:"oidc-ca" help:"PEM file with the issuer's CAs (default: the system's)." env:"TROUPE_OIDC_CA" type:"path" default:"" placeholder:"FILE"`
}

// Check returns an error for the first invalid setting.
func (c Config) Check() error {
	issuer, err := url.Parse(c.Issuer)
	claim, value, _ := strings.Cut(c.Admin, "=")
	switch {
	case c.Issuer == "" && (c.Audience != "" || c.Admin != "" || c.CA != ""):
		return errors.New("--oidc-issuer: --oidc-audience, --oidc-admin and --oidc-ca need it")
	case c.Issuer == "":
		return nil
	case err != nil || issuer.Scheme != "https" || issuer.Host == "" || issuer.RawQuery != "" || issuer.Fragment != "":
		return fmt.Errorf("--oidc-issuer: want a URL such as https://login.example.org, not %q", c.Issuer)
	case c.Audience == "":
		return errors.New("--oidc-audience: name the audience of the tokens, because tokens for other services must not open this mesh")
	case c.Admin != "" && (claim == "" || value == ""):
		return fmt.Errorf("--oidc-admin: want CLAIM=VALUE, such as groups=troupe-admins, not %q", c.Admin)
	}
	return nil
}

// algorithms are the accepted signature algorithms. All are asymmetric, so knowledge of the verification key does
// not allow forging a token.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

const (
	leeway        = time.Minute // tolerated clock difference
	maxTokenBytes = 8 << 10     // bytes; the headers of a call are limited to 16 KiB
	maxNameBytes  = 128         // limit of a subject in bytes
)

// Verifier verifies the tokens of an issuer. It is safe for concurrent use.
type Verifier struct {
	cfg  Config
	keys *keyCache
	now  func() time.Time
}

// New returns a verifier. It does not contact the issuer yet. It fails if the CA file is unreadable.
func New(cfg Config, log *zap.Logger) (*Verifier, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg.Tenant = cmp.Or(cfg.Tenant, "tenant")
	client, err := newHTTPClient(cfg.CA)
	if err != nil {
		return nil, fmt.Errorf("--oidc-ca: %w", err)
	}
	v := &Verifier{cfg: cfg, now: time.Now}
	v.keys = newKeyCache(cfg.Issuer, client, log, func() time.Time { return v.now() })
	return v, nil
}

// claims contains the standard claims of a token, and all claims by name.
type claims struct {
	jwt.Claims
	byName map[string]json.RawMessage
}

// UnmarshalJSON decodes the standard claims and also keeps all claims by name.
func (c *claims) UnmarshalJSON(text []byte) error {
	return errors.Join(json.Unmarshal(text, &c.Claims), json.Unmarshal(text, &c.byName))
}

// Principal returns the principal to whom a token was issued. It contacts the issuer only if the signing key is
// unknown, and then waits a few seconds at most. Modes: user_unauthenticated; system_network if no key of the
// issuer is known and fetching them fails.
func (v *Verifier) Principal(ctx context.Context, token string) (identity.Principal, error) {
	c, err := v.verifiedClaims(ctx, token)
	if err != nil {
		return identity.Principal{}, err
	}
	p := identity.Principal{Role: identity.Client, Name: c.Subject}
	if c.Subject == "" || len(c.Subject) > maxNameBytes {
		return identity.Principal{}, newUnauthenticatedError("the token must name its subject, in at most 128 bytes")
	}
	if json.Unmarshal(c.byName[v.cfg.Tenant], &p.Tenant) != nil || identity.CheckTenant(p.Tenant) != nil {
		return identity.Principal{}, newUnauthenticatedError("the token must name the tenant in its claim " + v.cfg.Tenant + ", as 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	if v.isAdmin(c) {
		p.Role = identity.Admin
	}
	return p, nil
}

// verifiedClaims returns the claims of a token after verifying it. The issuer must have signed it, for this mesh
// alone, and it must be valid now.
func (v *Verifier) verifiedClaims(ctx context.Context, token string) (claims, error) {
	var c claims
	if len(token) > maxTokenBytes {
		return c, newUnauthenticatedError("the token is too long")
	}
	signed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(signed.Headers) != 1 || signed.Headers[0].KeyID == "" {
		return c, newUnauthenticatedError("the token must be a JWT that names its key, signed with RS256, ES256 or EdDSA")
	}
	header := signed.Headers[0]
	key, err := v.keys.signingKey(ctx, header.KeyID)
	if err != nil {
		return c, err
	}
	if key.Algorithm != "" && key.Algorithm != header.Algorithm || signed.Claims(key.Key, &c) != nil {
		return claims{}, newUnauthenticatedError("the signature of the token was not made by its issuer")
	}
	switch now := v.now(); {
	case c.Issuer != v.cfg.Issuer:
		return claims{}, newUnauthenticatedError("the token comes from another issuer")
	case !slices.Equal(c.Audience, jwt.Audience{v.cfg.Audience}): // another service that receives the token could use it here
		return claims{}, newUnauthenticatedError("the token is not for this mesh alone; ask for one whose aud is just " + v.cfg.Audience)
	case c.Expiry == nil || !now.Before(c.Expiry.Time().Add(leeway)):
		return claims{}, newUnauthenticatedError("the token has expired; log in again")
	case c.NotBefore != nil && now.Before(c.NotBefore.Time().Add(-leeway)):
		return claims{}, newUnauthenticatedError("the token is not valid yet; check the clocks")
	}
	return c, nil
}

// isAdmin reports whether the admin claim equals the configured value, or is a list that contains it.
func (v *Verifier) isAdmin(c claims) bool {
	claim, want, ok := strings.Cut(v.cfg.Admin, "=")
	if !ok {
		return false
	}
	var one string
	var many []string
	return json.Unmarshal(c.byName[claim], &one) == nil && one == want ||
		json.Unmarshal(c.byName[claim], &many) == nil && slices.Contains(many, want)
}

func newUnauthenticatedError(message string) *failure.Error {
	return failure.New(failure.UserUnauthenticated, "authenticate", message)
}
