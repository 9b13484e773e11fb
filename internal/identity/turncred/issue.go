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

// jwtType is the typ in the JWT header. It distinguishes credentials from other JWTs that an orchestrator signs.
const jwtType = "troupe-turn+jwt"

// algorithms are the accepted signature algorithms, one for each kind of key. All are asymmetric.
var algorithms = []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.PS256}

// claims is the JWT payload of a credential.
type claims struct {
	jwt.Claims // iss is the orchestrator, sub the worker, aud the trust domain; iat and exp are set

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

// Issue returns a credential for a turn. It expires one minute after the deadline, but at most MaxLife from now. With a
// zero deadline it expires after MaxLife. The credential is empty if the process has no identity. An error of the
// signature has the mode unknown.
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
			Issuer: self.String(), Audience: jwt.Audience{meshAudience(self.TrustDomain)},
			Subject:  identity.ID{TrustDomain: self.TrustDomain, Role: identity.Worker, Name: t.Agent}.String(),
			IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(until),
		},
		Tenant: t.Tenant, Session: t.Session, Turn: t.ID, User: t.User, Trace: t.Trace, Epoch: t.Epoch, Step: t.Step, Replay: t.Replay,
		Root: t.Root, Level: t.Level, Budget: t.Budget,
	})
	if err != nil {
		return "", failure.New(failure.Unknown, "turncred.Issue",
			"the credential of the turn cannot be signed; the log of the orchestrator has the cause").Because(err)
	}
	return text, nil
}

func (a *Authority) sign(c claims) (string, error) {
	pair := a.self.KeyPair()
	algorithm, err := algorithmForKey(pair.PrivateKey)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType(jwtType).WithHeader("x5c", pair.Certificate)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: pair.PrivateKey}, options)
	if err != nil {
		return "", err
	}
	text, err := jwt.Signed(signer).Claims(c).Serialize()
	if err == nil && len(text) > maxCredentialBytes {
		err = fmt.Errorf("a credential of %d bytes is too long, the limit is %d: the certificate has too many intermediates", len(text), maxCredentialBytes)
	}
	return text, err
}

// meshAudience returns the audience of a credential, which is every service of the mesh.
func meshAudience(trustDomain string) string { return "spiffe://" + trustDomain }

func algorithmForKey(key any) (jose.SignatureAlgorithm, error) {
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
	return "", fmt.Errorf("keys of type %T cannot sign; use ECDSA, Ed25519 or RSA", key)
}
