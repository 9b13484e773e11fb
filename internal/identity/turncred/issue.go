package turncred

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// kind is the header typ: a JWT for something else that an orchestrator may sign is none of these.
const kind = "troupe-turn+jwt"

// algorithms are those that are taken, one for each kind of key. None of them has a shared secret.
var algorithms = []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.PS256}

// claims are what a credential says.
type claims struct {
	jwt.Claims // iss the orchestrator, sub the worker, aud the trust domain, iat, exp

	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Turn    string `json:"turn"`
	User    string `json:"user,omitempty"`
	Trace   string `json:"trace"`
	Epoch   int64  `json:"epoch,omitempty"`
	Step    int    `json:"step"`
	Replay  bool   `json:"replay,omitempty"`

	Root   string        `json:"root,omitempty"`
	Level  int           `json:"level,omitempty"`
	Budget budget.Limits `json:"budget"`
}

// Issue makes a credential that holds until a minute behind the deadline, and at most for
// MaxLife. A zero deadline is none. It is empty when the process has no identity. Modes: unknown.
func (a *Authority) Issue(t Turn, deadline time.Time) (string, error) {
	if a == nil {
		return "", nil
	}
	now, self := time.Now(), a.self.ID()
	until := now.Add(MaxLife)
	if end := deadline.Add(Grace); !deadline.IsZero() && end.Before(until) {
		until = end
	}
	text, err := a.sign(claims{
		Claims: jwt.Claims{
			Issuer: self.String(), Audience: jwt.Audience{audience(self.TrustDomain)},
			Subject:  identity.ID{TrustDomain: self.TrustDomain, Role: identity.Worker, Name: t.Agent}.String(),
			IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(until),
		},
		Tenant: t.Tenant, Session: t.Session, Turn: t.ID, User: t.User, Trace: t.Trace, Epoch: t.Epoch, Step: t.Step, Replay: t.Replay,
		Root: t.Root, Level: t.Level, Budget: t.Budget,
	})
	if err != nil {
		return "", failure.New(failure.Unknown, "turncred.Issue", "the turn gets no credential; the log of the orchestrator has the cause").Because(err)
	}
	return text, nil
}

func (a *Authority) sign(c claims) (string, error) {
	pair := a.self.Pair()
	algorithm, err := algorithmOf(pair.PrivateKey)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType(kind).WithHeader("x5c", pair.Certificate)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: pair.PrivateKey}, options)
	if err != nil {
		return "", err
	}
	text, err := jwt.Signed(signer).Claims(c).Serialize()
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("a credential of %d bytes is too long, the limit is %d: the certificate has too many intermediates", len(text), maxBytes)
	}
	return text, err
}

// audience is every service of a mesh.
func audience(trustDomain string) string { return "spiffe://" + trustDomain }

func algorithmOf(key any) (jose.SignatureAlgorithm, error) {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return jose.ES256, nil
		case 384:
			return jose.ES384, nil
		case 521:
			return jose.ES512, nil
		}
	case ed25519.PrivateKey:
		return jose.EdDSA, nil
	case *rsa.PrivateKey:
		return jose.PS256, nil
	}
	return "", fmt.Errorf("nothing can be signed with a key of %T; use one of ECDSA, Ed25519 or RSA", key)
}
