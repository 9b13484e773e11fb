package oidc

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestVerifier_ReturnsThePrincipalOfAToken(t *testing.T) {
	ec, rs, ed := newECKey(t), newRSAKey(t), newEd25519Key(t)
	i := startIssuer(t, map[string]crypto.Signer{"ec": ec, "rsa": rs, "ed": ed})
	v, _, _ := i.newVerifier()
	ann := identity.Principal{Role: identity.Client, Name: "ann", Tenant: "acme"}
	admin := identity.Principal{Role: identity.Admin, Name: "ann", Tenant: "acme"}
	for name, c := range map[string]struct {
		token string
		want  identity.Principal
	}{
		"ES256":            {signToken(t, jose.ES256, ec, "ec", i.newClaims(nil)), ann},
		"RS256":            {signToken(t, jose.RS256, rs, "rsa", i.newClaims(nil)), ann},
		"EdDSA":            {signToken(t, jose.EdDSA, ed, "ed", i.newClaims(nil)), ann},
		"a list of one":    {signToken(t, jose.ES256, ec, "ec", i.newClaims(map[string]any{"aud": []string{audience}})), ann},
		"no nbf":           {signToken(t, jose.ES256, ec, "ec", i.newClaims(map[string]any{"nbf": nil})), ann},
		"admin":            {signToken(t, jose.ES256, ec, "ec", i.newClaims(map[string]any{"groups": "operators"})), admin},
		"admin in list":    {signToken(t, jose.ES256, ec, "ec", i.newClaims(map[string]any{"groups": []string{"a", "operators"}})), admin},
		"similar values":   {signToken(t, jose.ES256, ec, "ec", i.newClaims(map[string]any{"groups": []string{"operators2", "Operators"}})), ann},
		"a word of a text": {signToken(t, jose.ES256, ec, "ec", i.newClaims(map[string]any{"groups": "a operators"})), ann},
	} {
		got, err := v.Principal(t.Context(), c.token)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	require.Equal(t, 1, i.keyFetchCount())
}

// Each case changes one thing in a valid token, so that the verifier must reject it.
func TestVerifier_RejectsInvalidTokens(t *testing.T) {
	ec, rs := newECKey(t), newRSAKey(t)
	i := startIssuer(t, map[string]crypto.Signer{"ec": ec, "rsa": rs})
	v, _, logs := i.newVerifier()
	good := signToken(t, jose.ES256, ec, "ec", i.newClaims(nil))
	_, err := v.Principal(t.Context(), good)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(rs.Public())
	require.NoError(t, err)
	sign := func(changes map[string]any) string { return signToken(t, jose.ES256, ec, "ec", i.newClaims(changes)) }
	parts := strings.Split(good, ".")
	raw := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	ago, ahead := time.Now().Add(-2*time.Minute).Unix(), time.Now().Add(2*time.Minute).Unix()
	for name, c := range map[string]struct{ token, says string }{
		"nothing":          {"", "must be a JWT"},
		"no JWT":           {"tr_abc", "must be a JWT"},
		"alg none":         {raw(`{"alg":"none","kid":"ec"}`) + "." + parts[1] + ".", "signed with RS256, ES256 or EdDSA"},
		"alg none, signed": {raw(`{"alg":"none","kid":"ec"}`) + "." + parts[1] + "." + parts[2], "signed with RS256, ES256 or EdDSA"},
		"HS256, public key": {
			signToken(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), "rsa", i.newClaims(nil)),
			"signed with RS256, ES256 or EdDSA",
		},
		"HS256, its bytes": {signToken(t, jose.HS256, public, "rsa", i.newClaims(nil)), "signed with RS256, ES256 or EdDSA"},
		"PS256":            {signToken(t, jose.PS256, rs, "rsa", i.newClaims(nil)), "signed with RS256, ES256 or EdDSA"},
		"alg of another":   {signToken(t, jose.RS256, rs, "ec", i.newClaims(nil)), "not made by its issuer"},
		"no kid":           {signToken(t, jose.ES256, ec, "", i.newClaims(nil)), "names its key"},
		"unknown kid":      {signToken(t, jose.ES256, ec, "other", i.newClaims(nil)), "a key that its issuer does not have"},
		"foreign key":      {signToken(t, jose.ES256, newECKey(t), "ec", i.newClaims(nil)), "not made by its issuer"},
		"changed claims":   {parts[0] + "." + raw(`{"iss":"x"}`) + "." + parts[2], "not made by its issuer"},
		"no signature":     {parts[0] + "." + parts[1] + ".", "not made by its issuer"},
		"issuer":           {sign(map[string]any{"iss": i.server.URL + "/"}), "comes from another issuer"},
		"no issuer":        {sign(map[string]any{"iss": nil}), "comes from another issuer"},
		"audience":         {sign(map[string]any{"aud": "troupe2"}), "not for this mesh alone"},
		"no audience":      {sign(map[string]any{"aud": nil}), "not for this mesh alone"},
		"two audiences":    {sign(map[string]any{"aud": []string{audience, "shop"}}), "not for this mesh alone"},
		"expired":          {sign(map[string]any{"exp": ago}), "has expired"},
		"no end":           {sign(map[string]any{"exp": nil}), "has expired"},
		"not yet":          {sign(map[string]any{"nbf": ahead}), "not valid yet"},
		"no tenant":        {sign(map[string]any{"tenant": nil}), "must name the tenant in its claim tenant"},
		"two tenants":      {sign(map[string]any{"tenant": []string{"acme", "default"}}), "must name the tenant"},
		"odd tenant":       {sign(map[string]any{"tenant": "acme/s1}"}), "must name the tenant"},
		"no subject":       {sign(map[string]any{"sub": nil}), "must name its subject"},
		"long":             {sign(map[string]any{"more": strings.Repeat("x", maxTokenBytes)}), "too long"},
	} {
		got, err := v.Principal(t.Context(), c.token)
		require.True(t, failure.Is(err, failure.UserUnauthenticated), "%s: %v", name, err)
		require.ErrorContains(t, err, c.says, name)
		require.Zero(t, got, name)
		for part := range strings.SplitSeq(c.token, ".") {
			if len(part) > 10 {
				require.NotContains(t, fmt.Sprintf("%+v %v", err, grpcfailure.ToProto(err)), part, name)
				for _, line := range logs.All() {
					require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), part, name)
				}
			}
		}
	}
}

func TestVerifier_AllowsClocksToDifferByAMinute(t *testing.T) {
	ec := newECKey(t)
	i := startIssuer(t, map[string]crypto.Signer{"ec": ec})
	v, clock, _ := i.newVerifier()
	from, to := time.Now().Truncate(time.Second), time.Now().Truncate(time.Second).Add(10*time.Minute)
	text := signToken(t, jose.ES256, ec, "ec", i.newClaims(map[string]any{"nbf": from.Unix(), "exp": to.Unix()}))
	for at, ok := range map[time.Time]bool{
		from.Add(-61 * time.Second): false, from.Add(-59 * time.Second): true,
		to.Add(59 * time.Second): true, to.Add(60 * time.Second): false,
	} {
		clock.at = at
		_, err := v.Principal(t.Context(), text)
		require.Equal(t, ok, err == nil, "%s: %v", at.Sub(from), err)
	}
}

// A new key is fetched with the first token that it signed. A withdrawn key is rejected after an hour. Tokens with
// unknown key ids do not cause repeated fetches.
func TestVerifier_UpdatesTheKeysOfItsIssuer(t *testing.T) {
	first, second := newECKey(t), newECKey(t)
	i := startIssuer(t, map[string]crypto.Signer{"1": first})
	v, clock, _ := i.newVerifier()
	ask := func(key any, id string) error {
		_, err := v.Principal(t.Context(), signToken(t, jose.ES256, key, id, i.newClaims(map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})))
		return err
	}
	require.NoError(t, ask(first, "1"))
	i.update(func() { i.keys = map[string]crypto.Signer{"2": second} })
	require.Error(t, ask(second, "2"), "the keys were fetched a moment ago")
	for range 5 {
		require.Error(t, ask(newECKey(t), "unknown"))
	}
	require.Equal(t, 1, i.keyFetchCount())
	require.NoError(t, ask(first, "1"), "keys are cached for an hour")

	clock.at = clock.at.Add(fetchInterval)
	require.NoError(t, ask(second, "2"))
	require.Equal(t, 2, i.keyFetchCount())
	require.Error(t, ask(first, "1"), "the key was withdrawn")

	i.update(func() { i.keys = map[string]crypto.Signer{"1": first} })
	clock.at = clock.at.Add(maxKeyAge)
	require.Error(t, ask(second, "2"), "old keys are fetched again")
	require.NoError(t, ask(first, "1"))
}

// Concurrent callers with the same new key cause only one fetch.
func TestVerifier_FetchesOnceForManyCallers(t *testing.T) {
	ec := newECKey(t)
	i := startIssuer(t, map[string]crypto.Signer{"ec": ec})
	v, _, _ := i.newVerifier()
	text := signToken(t, jose.ES256, ec, "ec", i.newClaims(nil))
	var callers sync.WaitGroup
	failed := make([]error, 20)
	for n := range failed {
		callers.Go(func() { _, failed[n] = v.Principal(t.Context(), text) })
	}
	callers.Wait()
	for _, err := range failed {
		require.NoError(t, err)
	}
	require.Equal(t, 1, i.keyFetchCount())
}

func TestVerifier_WorksWhileTheIssuerIsDown(t *testing.T) {
	ec := newECKey(t)
	i := startIssuer(t, map[string]crypto.Signer{"ec": ec})
	i.unavailable = true
	v, clock, logs := i.newVerifier() // New does not contact the issuer
	text := signToken(t, jose.ES256, ec, "ec", i.newClaims(map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()}))
	_, err := v.Principal(t.Context(), text)
	require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
	require.ErrorContains(t, err, "the keys of the token's issuer cannot be fetched now; try again later")

	i.update(func() { i.unavailable = false })
	clock.at = clock.at.Add(fetchInterval)
	_, err = v.Principal(t.Context(), text)
	require.NoError(t, err)
	i.update(func() { i.unavailable = true })
	for range 3 {
		clock.at = clock.at.Add(maxKeyAge)
		_, err = v.Principal(t.Context(), text)
		require.NoError(t, err, "the known keys stay in use")
	}
	require.Equal(t, 4, logs.FilterMessageSnippet("cannot be fetched").Len())
}

func TestVerifier_AcceptsOnlyTheConfiguredIssuer(t *testing.T) {
	ec := newECKey(t)
	i := startIssuer(t, map[string]crypto.Signer{"ec": ec})
	i.claimedIssuer = "https://evil.example.org"
	v, _, logs := i.newVerifier()
	_, err := v.Principal(t.Context(), signToken(t, jose.ES256, ec, "ec", i.newClaims(nil)))
	require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
	require.Contains(t, fmt.Sprint(logs.All()[0].ContextMap()), `the discovery document names the issuer "https://evil.example.org"`)

	i.claimedIssuer = ""
	v, _, logs = i.newVerifier(func(c *Config) { c.CA = "" })
	_, err = v.Principal(t.Context(), signToken(t, jose.ES256, ec, "ec", i.newClaims(nil)))
	require.True(t, failure.Is(err, failure.SystemNetwork), "%v", err)
	require.Contains(t, fmt.Sprint(logs.All()[0].ContextMap()), "unknown authority")
}

func TestConfig_RejectsInvalidSettings(t *testing.T) {
	for want, cfg := range map[string]Config{
		"--oidc-issuer: --oidc-audience":      {Audience: "a"},
		"--oidc-issuer: want a URL":           {Issuer: "http://login.example.org", Audience: "a"},
		"--oidc-audience: name the audience":  {Issuer: "https://login.example.org"},
		"--oidc-admin: want CLAIM=VALUE":      {Issuer: "https://login.example.org", Audience: "a", Admin: "groups"},
		"--oidc-ca: open /absent: no such fi": {Issuer: "https://login.example.org", Audience: "a", CA: "/absent"},
	} {
		_, err := New(cfg, zap.NewNop())
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, Config{}.Check())
}

// FuzzPrincipal checks that no input makes the verifier panic, and that no input is accepted as a token.
func FuzzPrincipal(f *testing.F) {
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	v, err := New(Config{Issuer: "https://127.0.0.1:1", Audience: "a"}, zap.NewNop())
	require.NoError(f, err)
	v.keys.lastFetch = v.now() // prevents fetches
	v.now = func() time.Time { return v.keys.lastFetch }
	f.Fuzz(func(t *testing.T, text string) {
		_, err := v.Principal(t.Context(), text)
		require.Error(t, err)
		require.False(t, len(text) > 20 && bytes.Contains([]byte(err.Error()), []byte(text)))
	})
}

// BenchmarkPrincipal measures the verification of a token whose key is cached.
func BenchmarkPrincipal(b *testing.B) {
	for alg, key := range map[jose.SignatureAlgorithm]crypto.Signer{jose.ES256: newECKey(b), jose.RS256: newRSAKey(b), jose.EdDSA: newEd25519Key(b)} {
		b.Run(string(alg), func(b *testing.B) {
			i := startIssuer(b, map[string]crypto.Signer{"1": key})
			v, _, _ := i.newVerifier()
			text := signToken(b, alg, key, "1", i.newClaims(nil))
			for b.Loop() {
				if _, err := v.Principal(b.Context(), text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
