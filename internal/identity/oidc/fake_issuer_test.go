package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const audience = "troupe"

// fakeIssuer is an OpenID Connect issuer that serves discovery and keys over TLS.
type fakeIssuer struct {
	t      testing.TB
	server *httptest.Server
	ca     string // path of its CA certificate

	mu            sync.Mutex
	claimedIssuer string // issuer that it claims to be (empty for its URL)
	keys          map[string]crypto.Signer
	unavailable   bool
	keyFetches    int // number of requests for the keys
}

func startIssuer(t testing.TB, keys map[string]crypto.Signer) *fakeIssuer {
	t.Helper()
	i := &fakeIssuer{t: t, keys: keys, ca: filepath.Join(t.TempDir(), "ca.crt")}
	i.server = httptest.NewTLSServer(http.HandlerFunc(i.handle))
	t.Cleanup(i.server.Close)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	require.NoError(t, os.WriteFile(i.ca, text, 0o600))
	return i
}

func (i *fakeIssuer) handle(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.unavailable {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	says := i.server.URL
	if i.claimedIssuer != "" {
		says = i.claimedIssuer
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": says, "jwks_uri": i.server.URL + "/keys"})
	case "/keys":
		i.keyFetches++
		set := jose.JSONWebKeySet{}
		for id, key := range i.keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set)
	default:
		http.NotFound(w, r)
	}
}

func (i *fakeIssuer) update(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

func (i *fakeIssuer) keyFetchCount() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keyFetches
}

// clock is the adjustable time source of a verifier.
type clock struct{ at time.Time }

// newVerifier returns a verifier for the issuer, with its clock and its log.
func (i *fakeIssuer) newVerifier(change ...func(*Config)) (*Verifier, *clock, *observer.ObservedLogs) {
	i.t.Helper()
	cfg := Config{Issuer: i.server.URL, Audience: audience, CA: i.ca, Admin: "groups=operators"}
	for _, f := range change {
		f(&cfg)
	}
	core, logs := observer.New(zap.DebugLevel)
	v, err := New(cfg, zap.New(core))
	require.NoError(i.t, err)
	c := &clock{time.Now()}
	v.now = func() time.Time { return c.at }
	return v, c, logs
}

// newClaims returns the claims of a valid token, modified by changes. A nil value removes a claim.
func (i *fakeIssuer) newClaims(changes map[string]any) map[string]any {
	now := time.Now()
	all := map[string]any{
		"iss": i.server.URL, "aud": audience, "sub": "ann", "tenant": "acme",
		"exp": now.Add(10 * time.Minute).Unix(), "nbf": now.Add(-time.Minute).Unix(), "iat": now.Unix(),
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// signToken returns a JWT with the claims, signed with the key.
func signToken(t testing.TB, alg jose.SignatureAlgorithm, key any, id string, claims any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options)
	require.NoError(t, err)
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(t, err)
	return text
}

func newECKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func newRSAKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return key
}

func newEd25519Key(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return key
}
