package turncred

import (
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

// Verify returns what a credential is for. Modes: fenced when it has ended, else policy_security.
// One that was verified before is not verified again.
func (a *Authority) Verify(credential string) (Turn, error) {
	now := time.Now()
	if t, ok := a.known.find(credential, now); ok {
		return t, nil
	}
	c, err := a.read(credential, now)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return Turn{}, failure.New(failure.Fenced, op, "the credential of the turn has ended; stop this work")
	case err != nil:
		return Turn{}, failure.New(failure.PolicySecurity, op,
			"the credential of the turn proves nothing; send the one of the step as it is").Because(err)
	}
	worker, err := identity.Parse(c.Subject)
	if err != nil || worker.Role != identity.Worker || worker.TrustDomain != a.self.ID().TrustDomain {
		return Turn{}, failure.New(failure.PolicySecurity, op, "the credential of the turn is for nobody of this mesh")
	}
	t := Turn{
		Agent: worker.Name, Tenant: c.Tenant, Session: c.Session, ID: c.Turn, User: c.User, Trace: c.Trace, Epoch: c.Epoch, Step: c.Step, Replay: c.Replay,
		Root: c.Root, Level: c.Level, Budget: c.Budget,
	}
	a.known.keep(credential, expiring{t, c.Expiry.Time()}, now)
	return t, nil
}

// read checks who signed a credential, with what, for whom and when.
func (a *Authority) read(credential string, now time.Time) (c claims, err error) {
	if len(credential) > maxBytes {
		return c, fmt.Errorf("it has %d bytes", len(credential))
	}
	token, err := jwt.ParseSigned(credential, algorithms)
	if err != nil {
		return c, err
	}
	if len(token.Headers) != 1 || token.Headers[0].ExtraHeaders["typ"] != kind {
		return c, errors.New("it is a token for something else")
	}
	// The time is not proven yet; it says only at which time the certificate must have been valid.
	if err := token.UnsafeClaimsWithoutVerification(&c); err != nil {
		return c, err
	}
	if c.IssuedAt == nil || c.Expiry == nil {
		return c, errors.New("it has no beginning or no end")
	}
	began, end := c.IssuedAt.Time(), c.Expiry.Time()
	chain, err := chainOf(credential)
	if err != nil {
		return c, err
	}
	signer, key, err := a.self.Signer(chain, began)
	if err != nil {
		return c, err
	}
	self := a.self.ID()
	if signer.Role != identity.Orchestrator || signer.TrustDomain != self.TrustDomain {
		return c, fmt.Errorf("%s signed it, which is no orchestrator of %s", signer, self.TrustDomain)
	}
	c = claims{}
	if err := token.Claims(key, &c); err != nil {
		return c, err
	}
	if life := end.Sub(began); life < 0 || life > MaxLife {
		return c, fmt.Errorf("it would hold for %s", life)
	}
	if !now.Before(end) {
		return c, jwt.ErrExpired // without a leeway, for Grace has one
	}
	return c, c.ValidateWithLeeway(jwt.Expected{
		Issuer: signer.String(), AnyAudience: jwt.Audience{audience(self.TrustDomain)}, Time: now,
	}, leeway)
}

// chainOf is the header x5c of a JWS. What it holds is not proven by that.
func chainOf(credential string) ([][]byte, error) {
	header, _, _ := strings.Cut(credential, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return nil, err
	}
	var in struct {
		Chain [][]byte `json:"x5c"` // which JSON has in the same base64
	}
	return in.Chain, json.Unmarshal(text, &in)
}
