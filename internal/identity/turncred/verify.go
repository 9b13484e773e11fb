package turncred

import (
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

const op = "turncred.Verify"

// Verify verifies a credential and returns its turn. Verified credentials are cached. Modes: fenced if the
// credential has expired, policy_security if it is otherwise invalid.
func (a *Authority) Verify(credential string) (Turn, error) {
	now := time.Now()
	if t, ok := a.cache.findTurn(credential, now); ok {
		return t, nil
	}
	c, err := a.verifyCredential(credential, now)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return Turn{}, failure.New(failure.Fenced, op, "the credential of the turn has expired; stop this work")
	case err != nil:
		return Turn{}, failure.New(failure.PolicySecurity, op,
			"the credential of the turn is invalid; send the credential of the step unchanged").Because(err)
	}
	worker, err := identity.Parse(c.Subject)
	if err != nil || worker.Role != identity.Worker || worker.TrustDomain != a.self.ID().TrustDomain {
		return Turn{}, failure.New(failure.PolicySecurity, op, "the credential of the turn names no worker of this mesh")
	}
	t := Turn{
		Agent: worker.Name, Tenant: c.Tenant, Session: c.Session, ID: c.Turn, User: c.User, Trace: c.Trace, Epoch: c.Epoch, Step: c.Step, Replay: c.Replay,
		Root: c.Root, Level: c.Level, Budget: c.Budget,
	}
	a.cache.addTurn(credential, cachedTurn{t, c.Expiry.Time()}, now)
	return t, nil
}

// verifyCredential verifies the signer, algorithm, audience and validity period of a credential.
func (a *Authority) verifyCredential(credential string, now time.Time) (c claims, err error) {
	if len(credential) > maxCredentialBytes {
		return c, fmt.Errorf("it has %d bytes", len(credential))
	}
	token, err := jwt.ParseSigned(credential, algorithms)
	if err != nil {
		return c, err
	}
	if len(token.Headers) != 1 || token.Headers[0].ExtraHeaders["typ"] != jwtType {
		return c, errors.New("it is a token for something else")
	}
	// This time is not verified yet. It only determines when the certificate must have been valid.
	if err := token.UnsafeClaimsWithoutVerification(&c); err != nil {
		return c, err
	}
	if c.IssuedAt == nil || c.Expiry == nil {
		return c, errors.New("it lacks iat or exp")
	}
	began, end := c.IssuedAt.Time(), c.Expiry.Time()
	signer, key, err := a.verifySigner(credential, began)
	if err != nil {
		return c, err
	}
	c = claims{}
	if err := token.Claims(key, &c); err != nil {
		return c, err
	}
	if life := end.Sub(began); life < 0 || life > MaxLife {
		return c, fmt.Errorf("it would hold for %s", life)
	}
	if !now.Before(end) {
		return c, jwt.ErrExpired // no leeway, because Grace includes one
	}
	return c, c.ValidateWithLeeway(jwt.Expected{
		Issuer: signer.String(), AnyAudience: jwt.Audience{meshAudience(signer.TrustDomain)}, Time: now,
	}, leeway)
}

// verifySigner returns the orchestrator of this mesh that signed a credential, and its key. Its certificate must have been
// valid at the given time.
func (a *Authority) verifySigner(credential string, at time.Time) (signer identity.ID, key crypto.PublicKey, err error) {
	chain, err := certificateChain(credential)
	if err != nil {
		return signer, nil, err
	}
	signer, key, err = a.self.VerifySigner(chain, at)
	if err != nil {
		return signer, nil, err
	}
	if domain := a.self.ID().TrustDomain; signer.Role != identity.Orchestrator || signer.TrustDomain != domain {
		return signer, nil, fmt.Errorf("it is signed by %s, which is no orchestrator of %s", signer, domain)
	}
	return signer, key, nil
}

// certificateChain returns the certificate chain in the x5c header of a JWS, without verifying it.
func certificateChain(credential string) ([][]byte, error) {
	header, _, _ := strings.Cut(credential, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return nil, err
	}
	var in struct {
		Chain [][]byte `json:"x5c"` // JSON decodes the same base64
	}
	return in.Chain, json.Unmarshal(text, &in)
}
