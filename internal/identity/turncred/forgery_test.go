package turncred

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// requireRejected requires that Verify rejects a credential and that the error quotes no part of it.
func requireRejected(t *testing.T, a *Authority, credential string) {
	t.Helper()
	_, err := a.Verify(credential)
	require.True(t, failure.Is(err, failure.PolicySecurity), "%v", err)
	for part := range strings.SplitSeq(credential, ".") {
		if len(part) > 8 {
			require.NotContains(t, grpcfailure.ToStatus(err).Error(), part)
		}
	}
}

// A credential in which any bit was changed is rejected (guarantee S6).
func TestAuthority_RejectsEveryChangedBit(t *testing.T) {
	m := newMesh(t, "example.org")
	credential, err := m.orchestrator(t).Issue(testTurn(), time.Time{})
	require.NoError(t, err)
	memory := m.memory(t)
	parts := strings.Split(credential, ".")
	for p, part := range parts {
		raw, err := base64.RawURLEncoding.DecodeString(part)
		require.NoError(t, err)
		step := max(1, len(raw)/30) // only a sample of the long parts, because the signature covers every bit
		for i := 0; i < len(raw); i += step {
			raw[i] ^= 1 << (i % 8)
			changed := append([]string(nil), parts...)
			changed[p] = base64.RawURLEncoding.EncodeToString(raw)
			requireRejected(t, memory, strings.Join(changed, "."))
			raw[i] ^= 1 << (i % 8)
		}
	}
	for _, other := range []string{
		"", ".", "..", "...", credential[:len(credential)-1], credential + "A", credential + ".", "." + credential, " " + credential,
		parts[0] + "." + parts[1] + ".", parts[0] + ".." + parts[2], strings.Repeat("A", maxCredentialBytes+1), credential + strings.Repeat(".", 100),
	} {
		requireRejected(t, memory, other)
	}
	_, err = memory.Verify(credential)
	require.NoError(t, err)
}

// forge returns a credential with a valid header and valid claims, modified by change and signed with key. A nil
// key means no signature.
func forge(t *testing.T, by *Authority, algorithm jose.SignatureAlgorithm, key any, chain [][]byte, change func(*claims), kind jose.ContentType) string {
	t.Helper()
	now, self := time.Now(), by.self.ID()
	c := claims{
		Claims: jwt.Claims{
			Issuer: self.String(), Audience: jwt.Audience{meshAudience(self.TrustDomain)}, Subject: "spiffe://" + self.TrustDomain + "/worker/research",
			IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Minute)),
		},
		Tenant: "acme", Session: "s-1", Turn: "t-1", Epoch: 7,
	}
	if change != nil {
		change(&c)
	}
	if key == nil {
		header, err := json.Marshal(map[string]any{"alg": algorithm, "typ": kind, "x5c": chain})
		require.NoError(t, err)
		text, err := json.Marshal(c)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithType(kind).WithHeader("x5c", chain))
	require.NoError(t, err)
	text, err := jwt.Signed(signer).Claims(c).Serialize()
	require.NoError(t, err)
	return text
}

// Only an orchestrator of the mesh can issue credentials, because they are signed with the key of its certificate
// (guarantee S6).
func TestAuthority_RejectsForgeries(t *testing.T) {
	m := newMesh(t, "example.org")
	orchestrator, memory, worker := m.orchestrator(t), m.memory(t), m.authority(t, identity.Worker, "research", newECKey(t))
	honest, own := orchestrator.self.KeyPair(), worker.self.KeyPair()
	public, err := x509.MarshalPKIXPublicKey(honest.Leaf.PublicKey)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	for name, credential := range map[string]string{
		"alg none":                    forge(t, orchestrator, "none", nil, honest.Certificate, nil, jwtType),
		"no signature":                forge(t, orchestrator, jose.ES256, nil, honest.Certificate, nil, jwtType),
		"HS256 with the public key":   forge(t, orchestrator, jose.HS256, text, honest.Certificate, nil, jwtType),
		"HS256 with the key in DER":   forge(t, orchestrator, jose.HS256, public, honest.Certificate, nil, jwtType),
		"HS256 with the certificate":  forge(t, orchestrator, jose.HS256, honest.Certificate[0], honest.Certificate, nil, jwtType),
		"a key that is not its own":   forge(t, orchestrator, jose.ES256, own.PrivateKey, honest.Certificate, nil, jwtType),
		"another algorithm":           forge(t, orchestrator, jose.ES384, nil, honest.Certificate, nil, jwtType),
		"no certificate":              forge(t, orchestrator, jose.ES256, honest.PrivateKey, nil, nil, jwtType),
		"a worker":                    forge(t, worker, jose.ES256, own.PrivateKey, own.Certificate, nil, jwtType),
		"a worker for another issuer": forge(t, orchestrator, jose.ES256, own.PrivateKey, own.Certificate, nil, jwtType),
		"two certificates, its own first": forge(t, orchestrator, jose.ES256, own.PrivateKey,
			[][]byte{own.Certificate[0], honest.Certificate[0]}, nil, jwtType),
		"two certificates, its own second": forge(t, orchestrator, jose.ES256, own.PrivateKey,
			[][]byte{honest.Certificate[0], own.Certificate[0]}, nil, jwtType),
		"the CA itself": forge(t, orchestrator, jose.ES256, m.key, [][]byte{m.cert.Raw}, nil, jwtType),
	} {
		t.Run(name, func(t *testing.T) { requireRejected(t, memory, credential) })
	}
	for name, other := range map[string]*testMesh{"another CA": newMesh(t, "example.org"), "another trust domain": newMesh(t, "example.com")} {
		t.Run(name, func(t *testing.T) {
			credential, err := other.orchestrator(t).Issue(testTurn(), time.Time{})
			require.NoError(t, err)
			requireRejected(t, memory, credential)
		})
	}
	for role, credential := range map[identity.Role]string{
		identity.Memory: issueCredential(t, memory), identity.Worker: issueCredential(t, worker), identity.Admin: issueCredential(t, m.authority(t,
			identity.Admin, "ann", newECKey(t))),
	} {
		t.Run("signed by "+string(role), func(t *testing.T) { requireRejected(t, m.memory(t), credential) })
	}
}

func issueCredential(t *testing.T, a *Authority) string {
	t.Helper()
	credential, err := a.Issue(testTurn(), time.Time{})
	require.NoError(t, err)
	return credential
}

// Verify rejects other JWTs of an orchestrator, and credentials with missing or invalid claims.
func TestAuthority_RejectsInvalidClaims(t *testing.T) {
	m := newMesh(t, "example.org")
	orchestrator, memory := m.orchestrator(t), m.memory(t)
	pair := orchestrator.self.KeyPair()
	at := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(time.Now().Add(d)) }
	for name, change := range map[string]func(*claims){
		"for another mesh":       func(c *claims) { c.Audience = jwt.Audience{"spiffe://example.com"} },
		"without an audience":    func(c *claims) { c.Audience = nil },
		"of another issuer":      func(c *claims) { c.Issuer = "spiffe://example.org/orchestrator2" },
		"without an end":         func(c *claims) { c.Expiry = nil },
		"without a beginning":    func(c *claims) { c.IssuedAt = nil },
		"for too long":           func(c *claims) { c.Expiry = at(MaxLife + time.Minute) },
		"from too long ago":      func(c *claims) { c.IssuedAt = at(-48 * time.Hour) },
		"from the future":        func(c *claims) { c.IssuedAt, c.Expiry = at(2*leeway), at(3*leeway) },
		"backwards":              func(c *claims) { c.Expiry = at(-time.Minute) },
		"for a memory service":   func(c *claims) { c.Subject = "spiffe://example.org/memory" },
		"for another mesh's one": func(c *claims) { c.Subject = "spiffe://example.com/worker/research" },
		"without a subject":      func(c *claims) { c.Subject = "" },
	} {
		t.Run(name, func(t *testing.T) {
			requireRejected(t, memory, forge(t, orchestrator, jose.ES256, pair.PrivateKey, pair.Certificate, change, jwtType))
		})
	}
	for _, kind := range []jose.ContentType{"JWT", "", "troupe-turn"} {
		requireRejected(t, memory, forge(t, orchestrator, jose.ES256, pair.PrivateKey, pair.Certificate, nil, kind))
	}
	_, err := memory.Verify(forge(t, orchestrator, jose.ES256, pair.PrivateKey, pair.Certificate, nil, jwtType))
	require.NoError(t, err, "without a change it is valid")
}

// FuzzVerify checks that any text is rejected with one of two modes and without a panic.
func FuzzVerify(f *testing.F) {
	m := newMesh(f, "example.org")
	memory := m.memory(f)
	credential, err := m.orchestrator(f).Issue(testTurn(), time.Time{})
	require.NoError(f, err)
	f.Add(credential)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add(strings.Repeat(".", 64))
	f.Fuzz(func(t *testing.T, text string) {
		turn, err := memory.Verify(text)
		if err == nil {
			require.Equal(t, testTurn(), turn)
			return
		}
		require.True(t, failure.Is(err, failure.PolicySecurity, failure.Fenced), "%v", err)
		require.Zero(t, turn)
	})
}
